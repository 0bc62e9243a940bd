//! Accepted and refused changes.

use super::*;
use crate::api::change_error::detail;
use crate::configuration::ChangeError;
use crate::database::DatabaseError;

const CHANGE: &str = r#"{"limits":{"client":{"capacity":7}}}"#;

#[test]
fn a_change_returns_the_new_state_and_is_recorded() {
    let server = TestServer::with_database(TEXT);
    let response = server.patch(&[], r#"{"providers":{"openai":{"max_retries":3}}}"#);
    assert_eq!((response.status, response.header("etag")), (200, "\"2\""));
    assert_eq!(response.json()["revision"], 2);
    let json = [("content-type", "application/json")];
    let response = server.request(
        "POST",
        "/admin/config",
        &json,
        r#"{"providers":{"openai":{"max_retries":4}}}"#,
    );
    assert_eq!((response.status, response.header("etag")), (200, "\"3\""));
    assert_eq!(server.get("/config").json()["providers"]["openai"]["max_retries"], 4);
    let mut history = server.get("/admin/history?limit=1").json();
    assert_ne!(history["changes"][0]["at_ms"].take(), 0, "set by the database");
    assert_eq!(
        history["changes"],
        json!([{"revision": 3, "at_ms": null, "door": "admin", "who": "127.0.0.1",
                "key": "providers.openai.max_retries", "old": 3, "new": 4}])
    );
    for query in ["limit=0", "limit=1001", "limit=x", "most=3"] {
        server.get(&format!("/admin/history?{query}")).assert_problem(400, "invalid-request");
    }
}

#[test]
fn a_change_for_an_outdated_revision_is_refused() {
    let server = TestServer::open();
    assert_eq!(server.patch(&[("if-match", "\"1\"")], CHANGE).status, 200);
    let response =
        server.patch(&[("if-match", "\"1\"")], r#"{"limits":{"client":{"capacity":8}}}"#);
    response.assert_problem(412, "conflict");
    assert_eq!(response.header("etag"), "\"2\"");
    let error = DatabaseError::Conflict { now: 2 }.into();
    let response = Response::rendered(AdminProblem::Change { error, expected: None });
    response.assert_problem(409, "conflict");
    assert_eq!(response.header("etag"), "\"2\"");
    server
        .patch(&[("if-match", "1")], r#"{"limits":{"client":{"capacity":8}}}"#)
        .assert_problem(400, "invalid-request");
    assert_eq!(server.revision(), 2);
}

#[test]
fn every_error_is_reported_by_its_key() {
    let server = TestServer::open();
    let change = r#"{"providers":{"openai":{"max_retries":99}},"store":{"url":"memory:"}}"#;
    let response = server.patch(&[], change);
    response.assert_problem(422, "invalid-configuration");
    assert_eq!(
        response.json()["errors"],
        json!([
            {"field": "providers.openai.max_retries", "rule": "must be a whole number between 0 and 20 (change: 99)"},
            {"field": "store.url", "rule": "cannot be set in the database: the store holds all buckets and cannot be replaced while the program runs (change)"},
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
        let text = detail(&error);
        let response = Response::rendered(AdminProblem::Change { error, expected: None });
        response.assert_problem(503, "database");
        assert_eq!(response.json()["detail"], text);
    }
    // A directory is not a database.
    let folder = tempfile::tempdir().unwrap();
    let (stored, database) = (
        StoredSettings { revision: 1, ..StoredSettings::default() },
        Database::sqlite(folder.path()),
    );
    let config = configuration::from_text(TEXT, stored, Some(database));
    let server = TestServer::serving(config, Bounds::default());
    server.patch(&[], CHANGE).assert_problem(503, "database");
    assert_eq!(server.revision(), 1);
}

/// RFC 7396 defines a media type for merge patches.
#[test]
fn patch_accepts_the_merge_patch_media_type() {
    let server = TestServer::open();
    let merge = [("content-type", "application/merge-patch+json; charset=utf-8")];
    let response = server.request("PATCH", "/admin/config", &merge, CHANGE);
    assert_eq!((response.status, response.header("etag")), (200, "\"2\""));
    server.request("POST", "/admin/config", &merge, CHANGE).assert_problem(415, "not-json");
}

#[test]
fn only_complete_json_of_bounded_size_is_accepted() {
    let server = TestServer::open();
    server.request("PATCH", "/admin/config", &[], "{}").assert_problem(415, "not-json");
    let form = [("content-type", "text/plain")];
    server.request("POST", "/admin/config", &form, "{}").assert_problem(415, "not-json");
    server.patch(&[], "{").assert_problem(400, "malformed-body");
    server.patch(&[], "{} {}").assert_problem(400, "malformed-body");
    let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(64 * 1024));
    server.patch(&[], &large).assert_problem(413, "body-too-large");
    assert_eq!(server.revision(), 1);
}

/// R360 and G13: values adjusted to the allowed range are reported with every change.
#[test]
fn a_change_returns_its_effects_and_warnings() {
    let server = TestServer::with_database(TEXT);
    let change = |asked: u32| {
        let body = format!(r#"{{"providers":{{"openai":{{"max_concurrent_requests":{asked}}}}}}}"#);
        let response = server.patch(&[], &body);
        assert_eq!(response.status, 200, "{response:?}");
        response.json()["change"].clone()
    };
    let expected = |old: u32, asked: u32| {
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
    assert_eq!(server.patch(&[], CHANGE).status, 200);
    let mut first = change(64);
    let warnings = first["warnings"].as_array_mut().unwrap();
    // The value in the file is shadowed from now on.
    assert!(warnings.pop().unwrap().as_str().unwrap().contains("is shadowed by 64"));
    assert_eq!(first, expected(8, 64));
    let mut second = change(77);
    second["warnings"].as_array_mut().unwrap().pop();
    assert_eq!(second, expected(32, 77));
    let nothing = json!({"changes": [], "warnings": [], "kept": "database"});
    assert_eq!(change(77), nothing);
    assert_eq!(server.get("/admin/config").json()["change"], Value::Null);
}

#[test]
fn without_a_database_a_change_warns_that_it_is_temporary() {
    let server = TestServer::open();
    let change = server.patch(&[], CHANGE).json()["change"].clone();
    assert_eq!(
        (&change["kept"], &change["changes"][0]["source"]),
        (&json!("until_restart"), &json!("runtime"))
    );
    let warnings = change["warnings"].to_string();
    assert!(warnings.contains("lost on restart"), "{warnings}");
}

/// G13: an operator peeks at a key, holds it, and refunds it.
#[test]
fn operators_can_peek_and_correct_keys() {
    let server = TestServer::open();
    let json = [("content-type", "application/json")];
    let post = |action: &str, body: &str| {
        server.request("POST", &format!("/admin/keys/{action}"), &json, body)
    };
    let key = r#"{"key":"alice","limit":"client","cost":0}"#;
    assert_eq!(post("peek", key).json()["remaining"], 100);
    let charge = r#"{"key":"alice","limit":"client","delta":40}"#;
    assert_eq!(post("settle", charge).json()["remaining"], 60);
    let refund = r#"{"key":"alice","limit":"client","delta":-40}"#;
    assert_eq!(post("settle", refund).json()["remaining"], 100);
    let hold = r#"{"key":"alice","limit":"client","for_ms":60000}"#;
    assert_eq!(post("hold", hold).status, 200);
    let held = post("peek", &key.replace("\"cost\":0", "\"cost\":1"));
    assert_eq!((held.status, &held.json()["allowed"]), (200, &json!(false)));
    assert_eq!(post("reset", r#"{"key":"alice","limit":"client"}"#).json()["reset"], true);
    assert_eq!(post("peek", key).json()["allowed"], true);
    for action in ["take", "reserve", "batch", "Peek", ""] {
        post(action, key).assert_problem(404, "not-found");
    }
    post("peek", r#"{"key":"alice"}"#).assert_problem(400, "invalid-request");
}
