//! Configuration changes at run time: atomic, and effective from the next request.

mod admission;
mod files;
mod kept;
mod snapshots;
mod telling;

use serde_json::{Value, json};

use crate::{Gate, patch};

const LIMITS: &str = "[limits.api]\ncapacity = 10\nrate = \"1/s\"\n";

/// Changes the limit, and returns the remaining tokens of a known key.
fn remaining(gate: &Gate, change: &Value) -> Value {
    let reply = gate.patch(&json!({"limits": {"api": change}}));
    assert_eq!(reply.status, 200, "{}", reply.body);
    left(gate)
}

fn left(gate: &Gate) -> Value {
    gate.post("/v1/peek", r#"{"key":"alice","limit":"api","cost":0}"#).member("remaining")
}

fn take(gate: &Gate, cost: u64) -> Value {
    let body = format!(r#"{{"key":"alice","limit":"api","cost":{cost}}}"#);
    gate.post("/v1/take", &body).member("remaining")
}

/// R426: tokens are kept, and refill continues at the new rate.
#[test]
fn a_bucket_keeps_its_tokens_and_refills_at_the_new_rate() {
    let gate = Gate::configured(LIMITS);
    assert_eq!(take(&gate, 6), 4);
    assert_eq!(remaining(&gate, &json!({"rate": "5/s"})), 4);
    // The first charge after the change converts the bucket to the new rate.
    assert_eq!(take(&gate, 1), 3);
    gate.advance(200);
    assert_eq!(left(&gate), 4);
    // A partial token is kept across a rate change.
    gate.advance(100);
    assert_eq!(remaining(&gate, &json!({"rate": "1/s"})), 4);
    assert_eq!(take(&gate, 1), 3);
    gate.advance(499);
    assert_eq!(left(&gate), 3);
    gate.advance(1);
    assert_eq!(left(&gate), 4);
}

/// R427: a lower capacity applies at the next check, a higher one grants nothing by itself.
#[test]
fn a_bucket_is_cut_to_a_lower_capacity_and_not_filled_to_a_higher_one() {
    let gate = Gate::configured(LIMITS);
    assert_eq!(take(&gate, 1), 9);
    assert_eq!(remaining(&gate, &json!({"capacity": 3})), 3);
    assert_eq!(take(&gate, 1), 2);
    assert_eq!(remaining(&gate, &json!({"capacity": 10})), 2);
    assert_eq!(take(&gate, 3), 2, "denied, and nothing spent");
    gate.advance(1_000);
    assert_eq!(take(&gate, 3), 0);
    gate.advance(60_000);
    assert_eq!(left(&gate), 10);
}

/// R370: values out of range give 422, and nothing is changed.
#[test]
fn a_change_with_two_mistakes_is_told_both_and_not_made() {
    let gate = Gate::configured(LIMITS);
    let change = json!({
        "limits": {"api": {"capacity": 0, "rate": "2/s"}},
        "providers": {"openai": {"max_concurrent_requests": 101, "max_retries": 3}},
    });
    let reply = gate.patch(&change);
    assert_eq!(reply.status, 422, "{}", reply.body);
    let errors = reply.member("errors");
    let fields: Vec<_> = errors.as_array().unwrap().iter().map(|one| &one["field"]).collect();
    assert_eq!(fields, ["limits.api.capacity", "providers.openai.max_concurrent_requests"]);
    assert_eq!(gate.setting("limits.api.rate"), "1/s");
    assert_ne!(gate.setting("providers.openai.max_retries"), 3);
    assert_eq!((left(&gate), gate.ask("/admin/config").member("revision")), (10.into(), 0.into()));
}

/// R370: a change keeps everything it does not name. R368 and R369: both endpoints show it.
#[test]
fn a_part_is_changed_and_the_rest_stays() {
    let gate = Gate::configured(LIMITS);
    let openai = |change: Value| gate.patch(&json!({"providers": {"openai": change}}));
    assert_eq!(openai(json!({"max_concurrent_requests": 4, "max_retries": 5})).status, 200);
    let body = json!({"providers": {"openai": {"max_retries": 2}}}).to_string();
    let request = gate.agent.post(format!("{}/admin/config", gate.admin()));
    let reply = request.header("content-type", "application/json").send(body).unwrap();
    assert_eq!(reply.status(), 200);
    let summary = gate.ask("/config").member("providers");
    let openai = &summary["openai"];
    assert_eq!(
        (&openai["max_concurrent_requests"], &openai["max_retries"]),
        (&4.into(), &2.into())
    );
    let shown = gate.ask("/admin/config?key=providers.openai.max_retries").member("settings");
    assert_eq!((&shown[0]["value"], &shown[0]["source"]), (&2.into(), &"runtime".into()));
}

#[test]
fn a_change_for_another_revision_is_not_made() {
    let gate = Gate::configured(LIMITS);
    let change = |tag: &str, capacity: u32| {
        let body = json!({"limits": {"api": {"capacity": capacity}}});
        patch(&gate.agent, &gate.admin(), tag, &body)
    };
    assert_eq!(gate.ask("/admin/config").header("etag"), Some("\"0\""));
    let made = change("\"0\"", 8);
    assert_eq!((made.status, made.header("etag")), (200, Some("\"1\"")));
    let late = change("\"0\"", 7);
    assert_eq!((late.status, late.header("etag")), (412, Some("\"1\"")), "{}", late.body);
    assert_eq!(gate.setting("limits.api.capacity"), 8);
    assert_eq!(change("*", 7).status, 200);
}
