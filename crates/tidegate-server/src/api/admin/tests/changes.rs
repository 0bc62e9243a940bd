//! Accepted and refused changes.

use super::*;
use crate::api::change_error::detail;
use crate::configuration::ChangeError;
use crate::database::DatabaseError;

const CHANGE: &str = r#"{"limits":{"client":{"capacity":7}}}"#;

#[test]
fn a_change_is_answered_with_the_state_after_it_and_remembered() {
    let gate = Gate::keeping(TEXT);
    let reply = gate.patch(&[], r#"{"providers":{"openai":{"max_retries":3}}}"#);
    assert_eq!((reply.status, reply.header("etag")), (200, "\"2\""));
    assert_eq!(reply.json()["revision"], 2);
    let json = [("content-type", "application/json")];
    let reply =
        gate.ask("POST", "/admin/config", &json, r#"{"providers":{"openai":{"max_retries":4}}}"#);
    assert_eq!((reply.status, reply.header("etag")), (200, "\"3\""));
    assert_eq!(gate.get("/config").json()["providers"]["openai"]["max_retries"], 4);
    let mut history = gate.get("/admin/history?limit=1").json();
    assert_ne!(history["changes"][0]["at_ms"].take(), 0, "a time of the database");
    assert_eq!(
        history["changes"],
        json!([{"revision": 3, "at_ms": null, "door": "admin", "who": "127.0.0.1",
                "key": "providers.openai.max_retries", "old": 3, "new": 4}])
    );
    for query in ["limit=0", "limit=1001", "limit=x", "most=3"] {
        gate.get(&format!("/admin/history?{query}")).refused(400, "invalid-request");
    }
}

#[test]
fn a_change_for_another_revision_is_not_made() {
    let gate = Gate::open();
    assert_eq!(gate.patch(&[("if-match", "\"1\"")], CHANGE).status, 200);
    let reply = gate.patch(&[("if-match", "\"1\"")], r#"{"limits":{"client":{"capacity":8}}}"#);
    reply.refused(412, "conflict");
    assert_eq!(reply.header("etag"), "\"2\"");
    let error = DatabaseError::Conflict { now: 2 }.into();
    let reply = Reply::rendered(AdminProblem::Change { error, expected: None });
    reply.refused(409, "conflict");
    assert_eq!(reply.header("etag"), "\"2\"");
    gate.patch(&[("if-match", "1")], r#"{"limits":{"client":{"capacity":8}}}"#)
        .refused(400, "invalid-request");
    assert_eq!(gate.revision(), 2);
}

#[test]
fn every_mistake_is_told_by_its_key() {
    let gate = Gate::open();
    let change = r#"{"providers":{"openai":{"max_retries":99}},"store":{"url":"memory:"}}"#;
    let reply = gate.patch(&[], change);
    reply.refused(422, "invalid-configuration");
    assert_eq!(
        reply.json()["errors"],
        json!([
            {"field": "providers.openai.max_retries", "rule": "must be a whole number between 0 and 20 (change: 99)"},
            {"field": "store.url", "rule": "never comes from the database: what was counted lives in the store, and a running program cannot move it (change)"},
        ])
    );
}

#[test]
fn a_database_that_cannot_be_written_is_503() {
    let errors = [
        DatabaseError::Unavailable("silence".into()),
        DatabaseError::ReadOnly,
        DatabaseError::NotMigrated,
    ];
    for error in errors.map(ChangeError::from) {
        let said = detail(&error);
        let reply = Reply::rendered(AdminProblem::Change { error, expected: None });
        reply.refused(503, "database");
        assert_eq!(reply.json()["detail"], said);
    }
    // A directory is not a database.
    let folder = tempfile::tempdir().unwrap();
    let (stored, database) =
        (Stored { revision: 1, ..Stored::default() }, Database::sqlite(folder.path()));
    let config = configuration::of_text(TEXT, stored, Some(database));
    let gate = Gate::serving(config, Bounds::default());
    gate.patch(&[], CHANGE).refused(503, "database");
    assert_eq!(gate.revision(), 1);
}

/// RFC 7396 defines a media type for merge patches.
#[test]
fn a_merge_patch_may_be_called_one() {
    let gate = Gate::open();
    let merge = [("content-type", "application/merge-patch+json; charset=utf-8")];
    let reply = gate.ask("PATCH", "/admin/config", &merge, CHANGE);
    assert_eq!((reply.status, reply.header("etag")), (200, "\"2\""));
    gate.ask("POST", "/admin/config", &merge, CHANGE).refused(415, "not-json");
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
    assert_eq!(gate.revision(), 1);
}

/// R360 and G13: values adjusted to the allowed range are reported with every change.
#[test]
fn a_change_is_answered_with_what_it_changed_and_what_to_look_at() {
    let gate = Gate::keeping(TEXT);
    let change = |asked: u32| {
        let body = format!(r#"{{"providers":{{"openai":{{"max_concurrent_requests":{asked}}}}}}}"#);
        let reply = gate.patch(&[], &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["change"].clone()
    };
    let told = |old: u32, asked: u32| {
        json!({
            "changes": [{"key": "providers.openai.max_concurrent_requests", "old": old,
                         "new": 32, "asked": asked, "source": "database"}],
            "warnings": [
                format!("openai: concurrency limit ({asked}) exceeds maximum (32). Capping at 32."),
            ],
            "kept": "database",
        })
    };
    // The first change also applies what the database already contains.
    assert_eq!(gate.patch(&[], CHANGE).status, 200);
    let mut first = change(64);
    let warnings = first["warnings"].as_array_mut().unwrap();
    // The value in the file is shadowed from now on.
    assert!(warnings.pop().unwrap().as_str().unwrap().contains("is shadowed by 64"));
    assert_eq!(first, told(8, 64));
    let mut second = change(77);
    second["warnings"].as_array_mut().unwrap().pop();
    assert_eq!(second, told(32, 77));
    let nothing = json!({"changes": [], "warnings": [], "kept": "database"});
    assert_eq!(change(77), nothing);
    assert_eq!(gate.get("/admin/config").json()["change"], Value::Null);
}

#[test]
fn without_a_database_a_change_says_that_it_is_lost_at_the_end() {
    let gate = Gate::open();
    let change = gate.patch(&[], CHANGE).json()["change"].clone();
    assert_eq!(
        (&change["kept"], &change["changes"][0]["source"]),
        (&json!("until_restart"), &json!("runtime"))
    );
    let warnings = change["warnings"].to_string();
    assert!(warnings.contains("lost when the program ends"), "{warnings}");
}

/// G13: an operator peeks at a key, holds it, and refunds it.
#[test]
fn keys_are_looked_at_and_corrected_by_hand() {
    let gate = Gate::open();
    let json = [("content-type", "application/json")];
    let ask =
        |action: &str, body: &str| gate.ask("POST", &format!("/admin/keys/{action}"), &json, body);
    let key = r#"{"key":"alice","limit":"client","cost":0}"#;
    assert_eq!(ask("peek", key).json()["remaining"], 100);
    let charge = r#"{"key":"alice","limit":"client","delta":40}"#;
    assert_eq!(ask("settle", charge).json()["remaining"], 60);
    let refund = r#"{"key":"alice","limit":"client","delta":-40}"#;
    assert_eq!(ask("settle", refund).json()["remaining"], 100);
    let hold = r#"{"key":"alice","limit":"client","for_ms":60000}"#;
    assert_eq!(ask("hold", hold).status, 200);
    let held = ask("peek", &key.replace("\"cost\":0", "\"cost\":1"));
    assert_eq!((held.status, &held.json()["allowed"]), (200, &json!(false)));
    assert_eq!(ask("reset", r#"{"key":"alice","limit":"client"}"#).json()["reset"], true);
    assert_eq!(ask("peek", key).json()["allowed"], true);
    for action in ["take", "reserve", "batch", "Peek", ""] {
        ask(action, key).refused(404, "not-found");
    }
    ask("peek", r#"{"key":"alice"}"#).refused(400, "invalid-request");
}
