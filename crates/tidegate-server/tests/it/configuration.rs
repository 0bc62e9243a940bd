//! Configuration changes at run time: atomic, and effective from the next request.

mod admission;
mod files;
mod reporting;
mod snapshots;
mod stored_changes;

use serde_json::{Value, json};

use crate::{TestServer, patch};

const LIMITS: &str = "[limits.api]\ncapacity = 10\nrate = \"1/s\"\n";

/// Changes the limit, and returns the remaining tokens of a known key.
fn remaining_after_change(server: &TestServer, change: &Value) -> Value {
    let response = server.patch(&json!({"limits": {"api": change}}));
    assert_eq!(response.status, 200, "{}", response.body);
    peek_remaining(server)
}

fn peek_remaining(server: &TestServer) -> Value {
    server.post("/v1/peek", r#"{"key":"alice","limit":"api","cost":0}"#).member("remaining")
}

fn take(server: &TestServer, cost: u64) -> Value {
    let body = format!(r#"{{"key":"alice","limit":"api","cost":{cost}}}"#);
    server.post("/v1/take", &body).member("remaining")
}

/// R426: tokens are kept, and refill continues at the new rate.
#[test]
fn a_bucket_keeps_its_tokens_and_refills_at_the_new_rate() {
    let server = TestServer::configured(LIMITS);
    assert_eq!(take(&server, 6), 4);
    assert_eq!(remaining_after_change(&server, &json!({"rate": "5/s"})), 4);
    // The first charge after the change converts the bucket to the new rate.
    assert_eq!(take(&server, 1), 3);
    server.advance(200);
    assert_eq!(peek_remaining(&server), 4);
    // A partial token is kept across a rate change.
    server.advance(100);
    assert_eq!(remaining_after_change(&server, &json!({"rate": "1/s"})), 4);
    assert_eq!(take(&server, 1), 3);
    server.advance(499);
    assert_eq!(peek_remaining(&server), 3);
    server.advance(1);
    assert_eq!(peek_remaining(&server), 4);
}

/// R427: a lower capacity applies at the next check, a higher one grants nothing by itself.
#[test]
fn a_bucket_shrinks_with_its_capacity_but_does_not_grow_at_once() {
    let server = TestServer::configured(LIMITS);
    assert_eq!(take(&server, 1), 9);
    assert_eq!(remaining_after_change(&server, &json!({"capacity": 3})), 3);
    assert_eq!(take(&server, 1), 2);
    assert_eq!(remaining_after_change(&server, &json!({"capacity": 10})), 2);
    assert_eq!(take(&server, 3), 2, "denied, and nothing spent");
    server.advance(1_000);
    assert_eq!(take(&server, 3), 0);
    server.advance(60_000);
    assert_eq!(peek_remaining(&server), 10);
}

/// R370: values out of range give 422, and nothing is changed.
#[test]
fn all_errors_of_a_change_are_reported_and_nothing_is_applied() {
    let server = TestServer::configured(LIMITS);
    let change = json!({
        "limits": {"api": {"capacity": 0, "rate": "2/s"}},
        "providers": {"openai": {"max_concurrent_requests": 101, "max_retries": 3}},
    });
    let response = server.patch(&change);
    assert_eq!(response.status, 422, "{}", response.body);
    let errors = response.member("errors");
    let fields: Vec<_> = errors.as_array().unwrap().iter().map(|one| &one["field"]).collect();
    assert_eq!(fields, ["limits.api.capacity", "providers.openai.max_concurrent_requests"]);
    assert_eq!(server.setting("limits.api.rate"), "1/s");
    assert_ne!(server.setting("providers.openai.max_retries"), 3);
    assert_eq!(
        (peek_remaining(&server), server.admin_get("/admin/config").member("revision")),
        (10.into(), 0.into())
    );
}

/// R370: a change keeps everything it does not name. R368 and R369: both endpoints show it.
#[test]
fn a_change_keeps_settings_it_does_not_name() {
    let server = TestServer::configured(LIMITS);
    let openai = |change: Value| server.patch(&json!({"providers": {"openai": change}}));
    assert_eq!(openai(json!({"max_concurrent_requests": 4, "max_retries": 5})).status, 200);
    let body = json!({"providers": {"openai": {"max_retries": 2}}}).to_string();
    let request = server.agent.post(format!("{}/admin/config", server.admin()));
    let response = request.header("content-type", "application/json").send(body).unwrap();
    assert_eq!(response.status(), 200);
    let summary = server.admin_get("/config").member("providers");
    let openai = &summary["openai"];
    assert_eq!(
        (&openai["max_concurrent_requests"], &openai["max_retries"]),
        (&4.into(), &2.into())
    );
    let shown =
        server.admin_get("/admin/config?key=providers.openai.max_retries").member("settings");
    assert_eq!((&shown[0]["value"], &shown[0]["source"]), (&2.into(), &"runtime".into()));
}

#[test]
fn a_change_for_an_outdated_revision_is_refused() {
    let server = TestServer::configured(LIMITS);
    let change = |tag: &str, capacity: u32| {
        let body = json!({"limits": {"api": {"capacity": capacity}}});
        patch(&server.agent, &server.admin(), tag, &body)
    };
    assert_eq!(server.admin_get("/admin/config").header("etag"), Some("\"0\""));
    let made = change("\"0\"", 8);
    assert_eq!((made.status, made.header("etag")), (200, Some("\"1\"")));
    let late = change("\"0\"", 7);
    assert_eq!((late.status, late.header("etag")), (412, Some("\"1\"")), "{}", late.body);
    assert_eq!(server.setting("limits.api.capacity"), 8);
    assert_eq!(change("*", 7).status, 200);
}
