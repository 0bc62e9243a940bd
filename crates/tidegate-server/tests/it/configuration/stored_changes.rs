//! Stored changes, on top of what the database already contains.

use std::path::Path;

use serde_json::{Value, json};
use tidegate::clock::ManualClock;
use tidegate_config::{Key, Loader};
use tidegate_server::{ChangeOrigin, Database, Server, SettingUpdate};
use tidegate_testkit::launch::wait_until;

use super::LIMITS;
use crate::{TestServer, on_free_ports};

/// Starts a server with this database file.
fn server(path: &Path, text: &str) -> TestServer {
    let url = format!("sqlite:{}", path.display());
    let layers =
        on_free_ports(Loader::default().flag(Key::DatabaseUrl, url)).text_layers("test", text);
    TestServer::serving(Server::new(layers).unwrap(), ManualClock::new())
}

/// Writes to the database like another process.
fn write(server: &TestServer, path: &Path, change: SettingUpdate) {
    let note = ChangeOrigin { door: "cli", who: None };
    let database = Database::sqlite(path);
    server.runtime.block_on(database.write(&[change], &note, None)).unwrap();
}

fn revision(server: &TestServer) -> Value {
    server.admin_get("/admin/config").member("revision")
}

/// A node does not undo a change that it has not seen yet.
#[test]
fn changes_of_two_processes_are_merged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tidegate.db");
    let server = server(&path, LIMITS);
    for round in 1..=5 {
        write(&server, &path, SettingUpdate::set("limits.api.rate", format!("\"{round}/s\"")));
        let response = server.patch(&json!({"limits": {"api": {"capacity": 20 + round}}}));
        assert_eq!(response.status, 200, "{}", response.body);
        assert_eq!(server.setting("limits.api.rate"), format!("{round}/s"));
        assert_eq!(server.setting("limits.api.capacity"), 20 + round);
        assert_eq!(revision(&server), 2 * round);
    }
}

/// Without the limit in the file, a stored setting of it is invalid. Regression: a change was
/// refused in such a case, but written anyway.
#[test]
fn invalid_stored_settings_are_ignored_until_a_change_corrects_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tidegate.db");
    let before = server(&path, LIMITS);
    assert_eq!(before.patch(&json!({"limits": {"api": {"capacity": 5}}})).status, 200);
    drop(before);
    let server = server(&path, "[limits.other]\nrate = \"1/s\"\n");
    assert_eq!(server.post("/v1/take", r#"{"key":"alice","limit":"other"}"#).status, 200);
    let refused = server.patch(&json!({"limits": {"other": {"rate": "2/s"}}}));
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body.contains("limits.api"), "{}", refused.body);
    let stored = server.runtime.block_on(Database::sqlite(&path).read()).unwrap();
    assert_eq!((stored.revision, stored.settings.len()), (1, 1), "nothing was written");
    let corrected = server.patch(&json!({"limits": {"api": null, "other": {"rate": "2/s"}}}));
    assert_eq!(corrected.status, 200, "{}", corrected.body);
    assert_eq!((server.setting("limits.other.rate"), revision(&server)), ("2/s".into(), 2.into()));
}

#[test]
fn changes_by_another_process_are_applied() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tidegate.db");
    let server = server(&path, LIMITS);
    write(&server, &path, SettingUpdate::set("limits.api.capacity", "7"));
    wait_until("the change", || (server.setting("limits.api.capacity") == 7).then_some(()));
    write(&server, &path, SettingUpdate::unset("limits.api.capacity"));
    wait_until("the removal", || (server.setting("limits.api.capacity") == 10).then_some(()));
    let history = server.admin_get("/admin/history").member("changes");
    assert_eq!((&history[0]["new"], &history[1]["door"]), (&Value::Null, &"cli".into()));
}

/// Regression: after such a change the next start failed, and so did every other change.
#[test]
fn an_invalid_kind_of_a_tier_can_be_removed_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tidegate.db");
    let server = server(&path, "");
    write(&server, &path, SettingUpdate::set("limits.client.allowance", "5"));
    wait_until("the refusal", || (revision(&server) == 1).then_some(()));
    assert_eq!(server.setting("limits.client.capacity"), 100, "the previous value still applies");
    let response = server.patch(&json!({"limits": {"client": {"allowance": null}}}));
    assert_eq!(response.status, 200, "{}", response.body);
    let stored = server.runtime.block_on(Database::sqlite(&path).read()).unwrap();
    assert!(stored.settings.is_empty(), "{:?}", stored.settings);
    assert_eq!(server.patch(&json!({"limits": {"client": {"capacity": 7}}})).status, 200);
    assert_eq!(server.setting("limits.client.capacity"), 7);
}

/// A setting that only a newer version knows.
#[test]
fn an_unknown_stored_key_can_be_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tidegate.db");
    let runtime = crate::one_worker();
    let note = ChangeOrigin { door: "cli", who: None };
    let change = [SettingUpdate::set("limits.client.newer_key", "5")];
    runtime.block_on(Database::sqlite(&path).write(&change, &note, None)).unwrap();
    let server = server(&path, "");
    assert_eq!(server.setting("limits.client.capacity"), 100, "stored settings are ignored");
    let response =
        server.patch(&json!({"limits": {"client": {"newer_key": null, "capacity": 71}}}));
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(server.setting("limits.client.capacity"), 71);
}
