//! Read-only endpoints.

use super::*;

#[test]
fn the_summary_contains_only_what_concerns_callers() {
    let server = TestServer::open();
    let response = server.get("/config");
    assert_eq!((response.status, response.header("etag")), (200, "\"1\""));
    let mut summary = response.json();
    let providers = summary["providers"].take();
    assert_eq!(
        summary,
        json!({
            "revision": 1,
            "providers": null,
            "limits": {"client": {"capacity": 100, "rate": "50/s"}, "clients": {"rate": "1/s"}},
        })
    );
    let openai = json!({
        "max_concurrent_requests": 8,
        "max_concurrent_requests_reason": "set by the file",
        "max_retries": 8,
    });
    assert_eq!(providers["openai"], openai);
    for (name, provider) in providers.as_object().unwrap() {
        let fields: Vec<_> = provider.as_object().unwrap().keys().collect();
        let expected = ["max_concurrent_requests", "max_concurrent_requests_reason", "max_retries"];
        assert_eq!(fields, expected, "{name}");
    }
}

#[test]
fn every_value_is_shown_with_its_source_and_shadowed_values() {
    let server = TestServer::open();
    let all = server.get("/admin/config");
    assert_eq!((all.status, all.header("etag")), (200, "\"1\""));
    let settings = all.json()["settings"].as_array().unwrap().clone();
    assert_eq!(settings.len(), server.config.current().effective.len());
    let fields = ["key", "value", "source", "shadowed", "configured", "note", "in_force", "reason"];
    for field in settings.iter().flat_map(|setting| setting.as_object().unwrap().keys()) {
        assert!(fields.contains(&field.as_str()), "{field}");
    }
    server.patch(&[], r#"{"limits":{"client":{"capacity":7,"rate":"10/s"}}}"#);
    let part = server.get("/admin/config?key=limits.client");
    assert_eq!(
        part.json()["settings"],
        json!([
            {"key": "limits.client.capacity", "value": 7, "source": "runtime",
             "shadowed": [{"source": "file", "value": 100}]},
            {"key": "limits.client.rate", "value": "10/s", "source": "runtime",
             "shadowed": [{"source": "file", "value": "50/s"}]},
        ])
    );
    server.get("/admin/config?kye=limits").assert_problem(400, "invalid-request");
}

#[test]
fn head_works_like_get_and_unknown_paths_are_problems() {
    let server = TestServer::open();
    for path in ["/config", "/admin/config", "/admin/history", "/metrics", "/healthz", "/readyz"] {
        let response = server.request("HEAD", path, &[], "");
        assert_eq!((response.status, response.body.as_str()), (200, ""), "{path}");
    }
    for path in ["/", "/admin", "/admin/", "/v1/take", "/admin/config/x"] {
        server.get(path).assert_problem(404, "not-found");
    }
    let response = server.request("DELETE", "/admin/config", &[], "");
    response.assert_problem(405, "method-not-allowed");
    assert_eq!(response.header("allow"), "GET,HEAD,PATCH,POST");
}

#[test]
fn metrics_use_the_accepted_format() {
    let server = TestServer::open();
    server.metrics.set_revision(7);
    let classic = server.get("/metrics");
    assert_eq!(classic.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert!(classic.body.contains("\ntidegate_config_revision 7\n"), "{}", classic.body);
    let accept = [("accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")];
    let newer = server.request("GET", "/metrics", &accept, "");
    assert!(
        newer.header("content-type").starts_with("application/openmetrics-text; version=1.0.0")
    );
    assert!(newer.body.ends_with("# EOF\n"));
}

#[test]
fn a_server_is_ready_unless_closed_limits_deny_or_it_shuts_down() {
    let mut server = TestServer::open();
    assert_eq!(server.get("/readyz").body, r#"{"status":"ready"}"#);
    server.denying_limits.store(2, Ordering::Relaxed);
    let response = server.get("/readyz");
    assert_eq!((response.status, &response.json()["reasons"][0]["code"]), (503, &json!("store")));
    assert_eq!(server.get("/healthz").body, r#"{"status":"ok"}"#);
    server.denying_limits.store(0, Ordering::Relaxed);
    let others = server.others.take().unwrap();
    server.runtime.block_on(others.drain(Duration::from_secs(1)));
    let response = server.get("/readyz");
    assert_eq!(
        (response.status, &response.json()["reasons"][0]["code"]),
        (503, &json!("draining"))
    );
    assert_eq!(server.get("/healthz").status, 200);
}

/// The document and the router must agree.
#[test]
fn the_openapi_document_describes_every_path() {
    let server = TestServer::open();
    let document = server.get("/openapi.json");
    assert_eq!((document.status, document.header("content-type")), (200, "application/json"));
    let document = document.json();
    let paths = document["paths"].as_object().unwrap();
    let expected = [
        "/admin/config",
        "/admin/events",
        "/admin/history",
        "/admin/keys/{action}",
        "/admin/providers",
        "/admin/providers/{name}",
        "/config",
        "/healthz",
        "/metrics",
        "/openapi.json",
        "/readyz",
    ];
    assert!(paths.keys().eq(expected.iter()), "{:?}", paths.keys());
    for (path, methods) in paths {
        // A method that no path supports: the response lists those it does.
        let allowed = server.request("DELETE", path, &[], "");
        allowed.assert_problem(405, "method-not-allowed");
        let allowed = allowed.header("allow").replace("HEAD,", "").replace(",HEAD", "");
        let mut allowed: Vec<_> = allowed.split(',').map(str::to_lowercase).collect();
        allowed.sort();
        assert!(methods.as_object().unwrap().keys().eq(allowed.iter()), "{path} {allowed:?}");
    }
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(document.pointer(reference).is_some(), "{reference}");
    }
}
