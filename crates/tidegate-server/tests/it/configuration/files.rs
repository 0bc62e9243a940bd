//! Configuration files that change while the server runs: what they cannot remove, and what needs a
//! restart.

use std::fs;
use std::path::Path;

use tidegate::clock::ManualClock;
use tidegate_config::{Key, Layers, Loader};
use tidegate_server::{ChangeOrigin, Database, Server, SettingUpdate, create_token};
use tidegate_testkit::launch::wait_until;

use super::LIMITS;
use crate::{TestServer, on_free_ports};

fn layers(file: &Path, database: &str) -> Layers {
    let loader = on_free_ports(Loader::default().flag(Key::DatabaseUrl, database));
    loader.file(file).layers().unwrap()
}

fn server(file: &Path, database: &str) -> TestServer {
    TestServer::serving(Server::new(layers(file, database)).unwrap(), ManualClock::new())
}

fn reload(server: &TestServer) {
    server.runtime.block_on(server.running.as_ref().unwrap().reload());
}

/// Regression: a file without tokens opened a non-loopback listener to everyone.
#[test]
fn a_non_loopback_listener_keeps_its_tokens() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.toml");
    let minted = create_token().unwrap();
    let admin = format!("[admin]\nwrite_tokens = [\"{}\"]\n", minted.digest);
    fs::write(&file, format!("{admin}{LIMITS}")).unwrap();
    let loader = on_free_ports(Loader::default().flag(Key::DatabaseUrl, "none"));
    let loader = loader.flag(Key::ListenAdmin, "0.0.0.0:0").file(&file);
    let server =
        TestServer::serving(Server::new(loader.layers().unwrap()).unwrap(), ManualClock::new());
    let port = server.admin.port();
    let status = || {
        let request = server.agent.get(format!("http://127.0.0.1:{port}/admin/config"));
        request.call().unwrap().status().as_u16()
    };
    assert_eq!(status(), 401);
    fs::write(&file, LIMITS.replace("capacity = 10", "capacity = 20")).unwrap();
    reload(&server);
    assert_eq!(status(), 401, "the previous tokens still apply");
    let peek = server.post("/v1/peek", r#"{"key":"alice","limit":"api","cost":0}"#);
    assert_eq!(peek.member("remaining"), 10, "nothing of the invalid file applies");
}

#[test]
fn a_missing_file_keeps_the_limits() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.toml");
    fs::write(&file, LIMITS).unwrap();
    let loader = on_free_ports(Loader::default().flag(Key::DatabaseUrl, "none"));
    let layers = loader.working_directory(directory.path()).layers().unwrap();
    let server = TestServer::serving(Server::new(layers).unwrap(), ManualClock::new());
    fs::remove_file(&file).unwrap();
    reload(&server);
    assert_eq!(server.post("/v1/take", r#"{"key":"alice","limit":"api"}"#).status, 200);
}

#[test]
fn settings_that_need_a_restart_show_their_current_value() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.toml");
    fs::write(&file, format!("[store]\nmax_memory = \"8MiB\"\n{LIMITS}")).unwrap();
    let server = server(&file, "none");
    let other = LIMITS.replace("capacity = 10", "capacity = 20");
    fs::write(&file, format!("[store]\nmax_memory = \"16MiB\"\n{other}")).unwrap();
    reload(&server);
    assert_eq!(server.setting("limits.api.capacity"), 20);
    assert_eq!(server.setting("store.max_memory"), "8MiB");
}

/// Regression: settings written by another node were forgotten once they were invalid here.
#[test]
fn a_file_change_can_make_stored_settings_valid_again() {
    let directory = tempfile::tempdir().unwrap();
    let (file, path) =
        (directory.path().join("tidegate.toml"), directory.path().join("tidegate.db"));
    fs::write(&file, LIMITS).unwrap();
    let server = server(&file, &format!("sqlite:{}", path.display()));
    let note = ChangeOrigin { door: "cli", who: None };
    let change = [SettingUpdate::set("limits.x.capacity", "99")];
    server.runtime.block_on(Database::sqlite(&path).write(&change, &note, None)).unwrap();
    wait_until("the refusal", || {
        (server.admin_get("/admin/config").member("revision") == 1).then_some(())
    });
    fs::write(&file, format!("{LIMITS}[limits.x]\nrate = \"5/s\"\n")).unwrap();
    reload(&server);
    assert_eq!(server.setting("limits.x.capacity"), 99);
}

/// Regression: a failure rule removed from the file stayed in effect.
#[test]
fn a_removed_failure_rule_no_longer_applies() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.toml");
    let store = "[store]\nurl = \"redis://127.0.0.1:1\"\n";
    fs::write(&file, format!("{store}{LIMITS}on_failure = \"closed\"\n")).unwrap();
    let server = server(&file, "none");
    let rule_used =
        || server.post("/v1/take", r#"{"key":"alice","limit":"api"}"#).member("degraded");
    assert_eq!(rule_used(), "closed");
    fs::write(&file, format!("{store}{LIMITS}")).unwrap();
    reload(&server);
    assert_eq!(rule_used(), "local");
}
