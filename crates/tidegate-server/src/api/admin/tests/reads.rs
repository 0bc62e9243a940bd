//! Read-only endpoints.

use super::*;

#[test]
fn the_summary_tells_callers_what_concerns_them_and_no_more() {
    let gate = Gate::open();
    let reply = gate.get("/config");
    assert_eq!((reply.status, reply.header("etag")), (200, "\"1\""));
    let mut summary = reply.json();
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
        let told = ["max_concurrent_requests", "max_concurrent_requests_reason", "max_retries"];
        assert_eq!(fields, told, "{name}");
    }
}

#[test]
fn every_value_is_shown_with_its_source_and_what_it_shadows() {
    let gate = Gate::open();
    let all = gate.get("/admin/config");
    assert_eq!((all.status, all.header("etag")), (200, "\"1\""));
    let settings = all.json()["settings"].as_array().unwrap().clone();
    assert_eq!(settings.len(), gate.config.current().effective.len());
    let fields = ["key", "value", "source", "shadowed", "configured", "note", "in_force", "reason"];
    for field in settings.iter().flat_map(|setting| setting.as_object().unwrap().keys()) {
        assert!(fields.contains(&field.as_str()), "{field}");
    }
    gate.patch(&[], r#"{"limits":{"client":{"capacity":7,"rate":"10/s"}}}"#);
    let part = gate.get("/admin/config?key=limits.client");
    assert_eq!(
        part.json()["settings"],
        json!([
            {"key": "limits.client.capacity", "value": 7, "source": "runtime",
             "shadowed": [{"source": "file", "value": 100}]},
            {"key": "limits.client.rate", "value": "10/s", "source": "runtime",
             "shadowed": [{"source": "file", "value": "50/s"}]},
        ])
    );
    gate.get("/admin/config?kye=limits").refused(400, "invalid-request");
}

#[test]
fn head_is_answered_wherever_get_is_and_unknown_paths_are_problems() {
    let gate = Gate::open();
    for path in ["/config", "/admin/config", "/admin/history", "/metrics", "/healthz", "/readyz"] {
        let reply = gate.ask("HEAD", path, &[], "");
        assert_eq!((reply.status, reply.body.as_str()), (200, ""), "{path}");
    }
    for path in ["/", "/admin", "/admin/", "/v1/take", "/admin/config/x"] {
        gate.get(path).refused(404, "not-found");
    }
    let reply = gate.ask("DELETE", "/admin/config", &[], "");
    reply.refused(405, "method-not-allowed");
    assert_eq!(reply.header("allow"), "GET,HEAD,PATCH,POST");
}

#[test]
fn metrics_come_in_the_format_that_is_asked_for() {
    let gate = Gate::open();
    gate.metrics.revised(7);
    let classic = gate.get("/metrics");
    assert_eq!(classic.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert!(classic.body.contains("\ntidegate_config_revision 7\n"), "{}", classic.body);
    let accept = [("accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")];
    let newer = gate.ask("GET", "/metrics", &accept, "");
    assert!(
        newer.header("content-type").starts_with("application/openmetrics-text; version=1.0.0")
    );
    assert!(newer.body.ends_with("# EOF\n"));
}

#[test]
fn a_server_is_ready_unless_a_closed_limit_cannot_decide_or_the_doors_are_closing() {
    let mut gate = Gate::open();
    assert_eq!(gate.get("/readyz").body, r#"{"status":"ready"}"#);
    gate.undecided.store(2, Ordering::Relaxed);
    let reply = gate.get("/readyz");
    assert_eq!((reply.status, &reply.json()["reasons"][0]["code"]), (503, &json!("store")));
    assert_eq!(gate.get("/healthz").body, r#"{"status":"ok"}"#);
    gate.undecided.store(0, Ordering::Relaxed);
    let others = gate.others.take().unwrap();
    gate.runtime.block_on(others.drain(Duration::from_secs(1)));
    let reply = gate.get("/readyz");
    assert_eq!((reply.status, &reply.json()["reasons"][0]["code"]), (503, &json!("draining")));
    assert_eq!(gate.get("/healthz").status, 200);
}

/// The document and the router must agree.
#[test]
fn the_document_for_programs_describes_every_path_that_answers() {
    let gate = Gate::open();
    let document = gate.get("/openapi.json");
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
        let allowed = gate.ask("DELETE", path, &[], "");
        allowed.refused(405, "method-not-allowed");
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
