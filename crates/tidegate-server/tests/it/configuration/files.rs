//! Configuration files that change while the server runs: what they cannot remove, and what needs a
//! restart.

use std::fs;
use std::path::Path;

use tidegate::clock::ManualClock;
use tidegate_config::{Key, Layers, Loader};
use tidegate_server::{Change, Database, Note, Server, mint};
use tidegate_testkit::launch::wait_until;

use super::LIMITS;
use crate::{Gate, doors_on};

fn layers(file: &Path, database: &str) -> Layers {
    let loader = doors_on(Loader::default().flag(Key::DatabaseUrl, database));
    loader.file(file).layers().unwrap()
}

fn gate(file: &Path, database: &str) -> Gate {
    Gate::serving(Server::new(layers(file, database)).unwrap(), ManualClock::new())
}

fn reload(gate: &Gate) {
    gate.runtime.block_on(gate.running.as_ref().unwrap().reload());
}

/// Regression: a file without tokens opened a non-loopback listener to everyone.
#[test]
fn a_door_beyond_loopback_does_not_lose_its_tokens() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("tidegate.toml");
    let minted = mint().unwrap();
    let admin = format!("[admin]\nwrite_tokens = [\"{}\"]\n", minted.digest);
    fs::write(&file, format!("{admin}{LIMITS}")).unwrap();
    let loader = doors_on(Loader::default().flag(Key::DatabaseUrl, "none"));
    let loader = loader.flag(Key::ListenAdmin, "0.0.0.0:0").file(&file);
    let gate = Gate::serving(Server::new(loader.layers().unwrap()).unwrap(), ManualClock::new());
    let port = gate.admin.port();
    let asked = || {
        let request = gate.agent.get(format!("http://127.0.0.1:{port}/admin/config"));
        request.call().unwrap().status().as_u16()
    };
    assert_eq!(asked(), 401);
    fs::write(&file, LIMITS.replace("capacity = 10", "capacity = 20")).unwrap();
    reload(&gate);
    assert_eq!(asked(), 401, "the tokens of before hold");
    let peek = gate.post("/v1/peek", r#"{"key":"alice","limit":"api","cost":0}"#);
    assert_eq!(peek.member("remaining"), 10, "and so does everything else of that file");
}

#[test]
fn a_file_that_is_gone_takes_no_limit_away() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("tidegate.toml");
    fs::write(&file, LIMITS).unwrap();
    let loader = doors_on(Loader::default().flag(Key::DatabaseUrl, "none"));
    let layers = loader.working_directory(here.path()).layers().unwrap();
    let gate = Gate::serving(Server::new(layers).unwrap(), ManualClock::new());
    fs::remove_file(&file).unwrap();
    reload(&gate);
    assert_eq!(gate.post("/v1/take", r#"{"key":"alice","limit":"api"}"#).status, 200);
}

#[test]
fn what_holds_from_the_next_start_on_is_not_shown_as_if_it_held() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("tidegate.toml");
    fs::write(&file, format!("[store]\nmax_memory = \"8MiB\"\n{LIMITS}")).unwrap();
    let gate = gate(&file, "none");
    let other = LIMITS.replace("capacity = 10", "capacity = 20");
    fs::write(&file, format!("[store]\nmax_memory = \"16MiB\"\n{other}")).unwrap();
    reload(&gate);
    assert_eq!(gate.setting("limits.api.capacity"), 20);
    assert_eq!(gate.setting("store.max_memory"), "8MiB");
}

/// Regression: settings written by another node were forgotten once they were invalid here.
#[test]
fn a_file_that_makes_sense_of_the_database_again_is_taken_with_it() {
    let here = tempfile::tempdir().unwrap();
    let (file, path) = (here.path().join("tidegate.toml"), here.path().join("tidegate.db"));
    fs::write(&file, LIMITS).unwrap();
    let gate = gate(&file, &format!("sqlite:{}", path.display()));
    let note = Note { door: "cli", who: None };
    let change = [Change::set("limits.x.capacity", "99")];
    gate.runtime.block_on(Database::sqlite(&path).write(&change, &note, None)).unwrap();
    wait_until("the refusal", || (gate.ask("/admin/config").member("revision") == 1).then_some(()));
    fs::write(&file, format!("{LIMITS}[limits.x]\nrate = \"5/s\"\n")).unwrap();
    reload(&gate);
    assert_eq!(gate.setting("limits.x.capacity"), 99);
}

/// Regression: a failure rule removed from the file stayed in effect.
#[test]
fn a_failure_rule_goes_with_its_line() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("tidegate.toml");
    let store = "[store]\nurl = \"redis://127.0.0.1:1\"\n";
    fs::write(&file, format!("{store}{LIMITS}on_failure = \"closed\"\n")).unwrap();
    let gate = gate(&file, "none");
    let decided = || gate.post("/v1/take", r#"{"key":"alice","limit":"api"}"#).member("degraded");
    assert_eq!(decided(), "closed");
    fs::write(&file, format!("{store}{LIMITS}")).unwrap();
    reload(&gate);
    assert_eq!(decided(), "local");
}
