//! Changes, and those that are not made.

use super::*;
use crate::database::DatabaseError;

#[test]
fn a_change_is_answered_with_the_state_after_it_and_remembered() {
    let gate = Gate::open();
    let reply = gate.patch(&[], r#"{"providers.openai.max_retries":3}"#);
    assert_eq!((reply.status, reply.header("etag")), (200, "\"2\""));
    assert_eq!(reply.json()["revision"], 2);
    let json = [("content-type", "application/json")];
    let reply = gate.ask("POST", "/admin/config", &json, r#"{"providers.openai.max_retries":4}"#);
    assert_eq!((reply.status, reply.header("etag")), (200, "\"3\""));
    assert_eq!(gate.get("/config").json()["providers"]["openai"]["max_retries"], 4);
    let history = gate.get("/admin/history?limit=1").json();
    assert_eq!(
        history["changes"],
        json!([{"revision": 3, "at_ms": 0, "door": "admin",
                "key": "providers.openai.max_retries", "old": 3, "new": 4}])
    );
    for query in ["limit=0", "limit=1001", "limit=x", "most=3"] {
        gate.get(&format!("/admin/history?{query}")).refused(400, "invalid-request");
    }
}

#[test]
fn a_change_for_another_revision_is_not_made() {
    let gate = Gate::open();
    assert_eq!(gate.patch(&[("if-match", "\"1\"")], r#"{"a":1}"#).status, 200);
    let reply = gate.patch(&[("if-match", "\"1\"")], r#"{"a":2}"#);
    reply.refused(412, "conflict");
    assert_eq!(reply.header("etag"), "\"2\"");
    gate.book.fail(UpdateError::Conflict { now: 2 });
    gate.patch(&[], r#"{"a":2}"#).refused(409, "conflict");
    gate.patch(&[("if-match", "1")], r#"{"a":2}"#).refused(400, "invalid-request");
    assert_eq!(gate.book.shown().revision, 2);
}

#[test]
fn every_mistake_is_told_by_its_key() {
    let gate = Gate::open();
    let fault = |key: &str, message: &str| Fault { key: key.into(), message: message.into() };
    gate.book.fail(UpdateError::Invalid(vec![
        fault("providers.openai.max_retries", "must be at most 20"),
        fault("store.url", "is not changed at run time"),
    ]));
    let reply = gate.patch(&[], r#"{"providers":{"openai":{"max_retries":99}}}"#);
    reply.refused(422, "invalid-configuration");
    assert_eq!(
        reply.json()["errors"],
        json!([
            {"field": "providers.openai.max_retries", "rule": "must be at most 20"},
            {"field": "store.url", "rule": "is not changed at run time"},
        ])
    );
}

#[test]
fn a_database_that_cannot_be_written_is_503() {
    let gate = Gate::open();
    let unusable = UpdateError::Unusable(DatabaseError::NotMigrated);
    for error in [UpdateError::Unavailable, UpdateError::ReadOnly, unusable] {
        let said = error.to_string();
        gate.book.fail(error);
        let reply = gate.patch(&[], "{}");
        reply.refused(503, "database");
        assert_eq!(reply.json()["detail"], said);
    }
    assert_eq!(gate.book.shown().revision, 1);
}

/// RFC 7396 has a name of its own for what a PATCH brings.
#[test]
fn a_merge_patch_may_be_called_one() {
    let gate = Gate::open();
    let merge = [("content-type", "application/merge-patch+json; charset=utf-8")];
    let reply = gate.ask("PATCH", "/admin/config", &merge, r#"{"a":1}"#);
    assert_eq!((reply.status, reply.header("etag")), (200, "\"2\""));
    gate.ask("POST", "/admin/config", &merge, r#"{"a":1}"#).refused(415, "not-json");
}

#[test]
fn only_whole_json_of_a_bounded_size_is_taken() {
    let gate = Gate::open();
    gate.ask("PATCH", "/admin/config", &[], "{}").refused(415, "not-json");
    let form = [("content-type", "text/plain")];
    gate.ask("POST", "/admin/config", &form, "{}").refused(415, "not-json");
    gate.patch(&[], "{").refused(400, "malformed-body");
    gate.patch(&[], "{} {}").refused(400, "malformed-body");
    let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(64 * 1024));
    gate.patch(&[], &large).refused(413, "body-too-large");
    assert_eq!(gate.book.shown().revision, 1);
}
