//! R346, R347 and R325: which statuses are retried, by provider and by configuration.

use std::fs;

use serde_json::json;

use super::upstream::{CALL, Gateway, STATUS, Upstream};
use crate::program::run;

const OPENAI: &str = "/v1/chat/completions";

/// Returns the configuration of a provider with two retries and no delay.
fn provider(name: &str, url: &str, more: &str) -> String {
    format!(
        "[providers.{name}]\nbase_url = \"{url}\"\nmax_retries = 2\nretry_base = \"1ms\"\n\
         breaker = false\n{more}\n"
    )
}

/// Returns the number of attempts of a call that gets this status.
fn attempts(gateway: &Gateway, upstream: &Upstream, path: &str, status: u16) -> usize {
    let (text, call) = (status.to_string(), format!("{path} {status}"));
    let reply = gateway.call(path, &call, &[(STATUS, &text), (CALL, &call)]);
    assert_eq!(reply.status, status, "{path}: {reply:?}");
    let attempts = upstream.attempts(&call);
    assert_eq!(reply.number("x-tidegate-attempts"), attempts as u64, "{reply:?}");
    let tells = reply.headers.get("x-should-retry").map(|value| value.to_str().unwrap());
    assert_eq!(tells, Some("false"), "the caller need not retry either: {reply:?}");
    attempts
}

#[test]
fn each_provider_retries_its_documented_statuses() {
    let upstream = Upstream::start();
    let tables = [
        ("openai", OPENAI, [429, 500, 503], [408, 409, 502, 504, 529]),
        ("anthropic", "/v1/messages", [429, 500, 529], [408, 409, 502, 503, 504]),
        ("ollama", "/api/chat", [429, 500, 502], [408, 409, 503, 504, 529]),
    ];
    let text: String = tables.iter().map(|table| provider(table.0, &upstream.url, "")).collect();
    let gateway = Gateway::start(&text);
    for (name, path, retried, passed_on) in tables {
        let path = format!("/{name}{path}");
        for status in retried {
            assert_eq!(attempts(&gateway, &upstream, &path, status), 3, "{name} {status}");
        }
        for status in passed_on.into_iter().chain([400, 401, 403, 404, 413, 501]) {
            assert_eq!(attempts(&gateway, &upstream, &path, status), 1, "{name} {status}");
        }
        let (shown, source) = gateway.serving.setting(&format!("providers.{name}.retry_statuses"));
        assert_eq!((shown, &*source), (json!(retried), "default"));
    }
}

/// Setting: providers.*.retry_statuses
#[test]
fn retried_statuses_are_configurable() {
    let upstream = Upstream::start();
    let text = provider("openai", &upstream.url, "retry_statuses = [418, 429, 502]");
    let gateway = Gateway::start(&text);
    let path = "/openai/v1/chat/completions";
    for (status, expected) in [(418, 3), (502, 3), (500, 1), (503, 1)] {
        assert_eq!(attempts(&gateway, &upstream, path, status), expected, "{status}");
    }
    // An exhausted quota is never retried, whatever the list says.
    let unpaid = [(STATUS, "429"), (CALL, "unpaid"), ("x-error", "insufficient_quota")];
    assert_eq!(gateway.call(path, "unpaid", &unpaid).status, 429);
    assert_eq!(upstream.attempts("unpaid"), 1);
    gateway.change(&json!({ "providers": { "openai": { "retry_statuses": [504] } } }));
    let shown = gateway.serving.setting("providers.openai.retry_statuses");
    assert_eq!(shown, (json!([504]), "database".to_owned()));
    for (status, expected) in [(504, 3), (507, 1)] {
        assert_eq!(attempts(&gateway, &upstream, path, status), expected, "{status}");
    }
    let again = [(STATUS, "502"), (CALL, "again")];
    gateway.call(path, "again", &again);
    assert_eq!(upstream.attempts("again"), 1, "no longer in the list");
}

#[test]
fn permanent_error_statuses_cannot_be_retried() {
    let here = tempfile::tempdir().unwrap();
    for (list, rule) in [
        ("[429, 401]", "must not contain 401: the request or its key is invalid"),
        ("[200]", "must be HTTP statuses from 400 to 599, such as [429, 500, 503]"),
        ("[\"x\"]", "must be HTTP statuses from 400 to 599"),
        ("429", "must be a list"),
    ] {
        let text = format!("[providers.openai]\nretry_statuses = {list}\n");
        fs::write(here.path().join("bad.toml"), text).unwrap();
        let ended = run(here.path(), &["check", "bad.toml"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(rule), "{list}: {}", ended.stderr);
    }
}
