//! Stored changes, on top of what the database already contains.

use std::path::Path;

use serde_json::{Value, json};
use tidegate::clock::ManualClock;
use tidegate_config::{Key, Loader};
use tidegate_server::{Change, Database, Note, Server};
use tidegate_testkit::launch::wait_until;

use super::LIMITS;
use crate::{Gate, doors_on};

/// Starts a server with this database file.
fn gate(path: &Path, text: &str) -> Gate {
    let url = format!("sqlite:{}", path.display());
    let layers = doors_on(Loader::default().flag(Key::DatabaseUrl, url)).text_layers("test", text);
    Gate::serving(Server::new(layers).unwrap(), ManualClock::new())
}

/// Writes to the database like another process.
fn write(gate: &Gate, path: &Path, change: Change) {
    let note = Note { door: "cli", who: None };
    let database = Database::sqlite(path);
    gate.runtime.block_on(database.write(&[change], &note, None)).unwrap();
}

fn revision(gate: &Gate) -> Value {
    gate.ask("/admin/config").member("revision")
}

/// A node does not undo a change that it has not seen yet.
#[test]
fn changes_of_two_processes_do_not_push_each_other_out() {
    let here = tempfile::tempdir().unwrap();
    let path = here.path().join("tidegate.db");
    let gate = gate(&path, LIMITS);
    for round in 1..=5 {
        write(&gate, &path, Change::set("limits.api.rate", format!("\"{round}/s\"")));
        let reply = gate.patch(&json!({"limits": {"api": {"capacity": 20 + round}}}));
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(gate.setting("limits.api.rate"), format!("{round}/s"));
        assert_eq!(gate.setting("limits.api.capacity"), 20 + round);
        assert_eq!(revision(&gate), 2 * round);
    }
}

/// Without the limit in the file, a stored setting of it is invalid. Regression: a change was
/// refused in such a case, but written anyway.
#[test]
fn a_database_that_cannot_be_used_is_passed_over_until_a_change_mends_it() {
    let here = tempfile::tempdir().unwrap();
    let path = here.path().join("tidegate.db");
    let before = gate(&path, LIMITS);
    assert_eq!(before.patch(&json!({"limits": {"api": {"capacity": 5}}})).status, 200);
    drop(before);
    let gate = gate(&path, "[limits.other]\nrate = \"1/s\"\n");
    assert_eq!(gate.post("/v1/take", r#"{"key":"alice","limit":"other"}"#).status, 200);
    let refused = gate.patch(&json!({"limits": {"other": {"rate": "2/s"}}}));
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body.contains("limits.api"), "{}", refused.body);
    let stored = gate.runtime.block_on(Database::sqlite(&path).read()).unwrap();
    assert_eq!((stored.revision, stored.settings.len()), (1, 1), "nothing was written");
    let mended = gate.patch(&json!({"limits": {"api": null, "other": {"rate": "2/s"}}}));
    assert_eq!(mended.status, 200, "{}", mended.body);
    assert_eq!((gate.setting("limits.other.rate"), revision(&gate)), ("2/s".into(), 2.into()));
}

#[test]
fn what_another_process_writes_is_taken_over() {
    let here = tempfile::tempdir().unwrap();
    let path = here.path().join("tidegate.db");
    let gate = gate(&path, LIMITS);
    write(&gate, &path, Change::set("limits.api.capacity", "7"));
    wait_until("the change", || (gate.setting("limits.api.capacity") == 7).then_some(()));
    write(&gate, &path, Change::unset("limits.api.capacity"));
    wait_until("the way back", || (gate.setting("limits.api.capacity") == 10).then_some(()));
    let history = gate.ask("/admin/history").member("changes");
    assert_eq!((&history[0]["new"], &history[1]["door"]), (&Value::Null, &"cli".into()));
}

/// Regression: after such a change the next start failed, and so did every other change.
#[test]
fn a_kind_that_a_tier_cannot_have_while_the_server_runs_locks_nobody_out() {
    let here = tempfile::tempdir().unwrap();
    let path = here.path().join("tidegate.db");
    let gate = gate(&path, "");
    write(&gate, &path, Change::set("limits.client.allowance", "5"));
    wait_until("the refusal", || (revision(&gate) == 1).then_some(()));
    assert_eq!(gate.setting("limits.client.capacity"), 100, "what was before holds");
    let reply = gate.patch(&json!({"limits": {"client": {"allowance": null}}}));
    assert_eq!(reply.status, 200, "{}", reply.body);
    let stored = gate.runtime.block_on(Database::sqlite(&path).read()).unwrap();
    assert!(stored.settings.is_empty(), "{:?}", stored.settings);
    assert_eq!(gate.patch(&json!({"limits": {"client": {"capacity": 7}}})).status, 200);
    assert_eq!(gate.setting("limits.client.capacity"), 7);
}

/// A setting that only a newer version knows.
#[test]
fn an_unknown_key_of_the_database_can_be_taken_out() {
    let here = tempfile::tempdir().unwrap();
    let path = here.path().join("tidegate.db");
    let runtime = crate::one_worker();
    let note = Note { door: "cli", who: None };
    let change = [Change::set("limits.client.newer_key", "5")];
    runtime.block_on(Database::sqlite(&path).write(&change, &note, None)).unwrap();
    let gate = gate(&path, "");
    assert_eq!(gate.setting("limits.client.capacity"), 100, "the database is passed over");
    let reply = gate.patch(&json!({"limits": {"client": {"newer_key": null, "capacity": 71}}}));
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(gate.setting("limits.client.capacity"), 71);
}
