//! Changes, and those that are not made.

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
        json!([{"revision": 3, "at_ms": null, "door": "admin",
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
    // A folder is no database.
    let folder = tempfile::tempdir().unwrap();
    let (stored, database) =
        (Stored { revision: 1, ..Stored::default() }, Database::sqlite(folder.path()));
    let config = configuration::of_text(TEXT, stored, Some(database));
    let gate = Gate::serving(config, Bounds::default());
    gate.patch(&[], CHANGE).refused(503, "database");
    assert_eq!(gate.revision(), 1);
}

/// RFC 7396 has a name of its own for what a PATCH brings.
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
