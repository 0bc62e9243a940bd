//! Several nodes with one PostgreSQL database: changes reach all nodes, and an outage stops none.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_testkit::launch::{PostgresServer, wait_until};

use crate::program::{Serving, run, serve};

const CAPACITY: &str = "limits.client.capacity";

fn change(capacity: u32) -> Value {
    json!({"limits": {"client": {"capacity": capacity}}})
}

fn takes(serving: &Serving) -> u16 {
    serving.post("/v1/take", r#"{"key":"alice","limit":"client"}"#).0
}

/// Starts a server with a migrated database.
fn database() -> (PostgresServer, String) {
    let here = tempfile::tempdir().unwrap();
    let server = PostgresServer::start();
    let url = server.fresh_database();
    for (told, times) in [("created in format 1\n", 1), ("already at format 1\n", 2)] {
        let ended = run(here.path(), &["db", "migrate", "--database", &url]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), told), "{times}: {ended:?}");
    }
    (server, url)
}

/// Setting: database.auto_migrate
#[test]
fn missing_tables_require_a_migration() {
    let here = tempfile::tempdir().unwrap();
    let server = PostgresServer::start();
    let url = server.fresh_database();
    let set = ["config", "set", CAPACITY, "7", "--database", &url];
    let ended = run(here.path(), &set);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.stderr.contains("tidegate db migrate"), "{ended:?}");
    let args = ["--database", &url, "--auto-migrate"];
    let serving = Serving::start(&mut serve(here.path(), &args));
    let ended = run(here.path(), &set);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "revision 1\n"), "{ended:?}");
    serving.wait_until_it_has(CAPACITY, &json!(7));
}

/// Setting: database.url
#[test]
#[expect(clippy::print_stdout, reason = "the time is printed for information")]
fn change_at_one_node_reaches_the_other() {
    let here = tempfile::tempdir().unwrap();
    let (_server, url) = database();
    let [one, other] =
        [(); 2].map(|()| Serving::start(&mut serve(here.path(), &["--database", &url])));
    for (from, to, capacity) in [(&one, &other, 31), (&other, &one, 32), (&one, &other, 33)] {
        let (status, body) = from.patch(&change(capacity));
        assert_eq!(status, 200, "{body}");
        let began = tokio::time::Instant::now();
        to.wait_until_it_has(CAPACITY, &json!(capacity));
        let took = began.elapsed();
        println!("the other node had the change after {took:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
    let body = r#"{"key":"bob","limit":"client","cost":0}"#;
    assert!([&one, &other].iter().all(|it| it.post("/v1/peek", body).1.contains(":33,")));
    let ended = other.stop("TERM");
    assert!(ended.stderr.contains("door=\"database\""), "{ended:?}");
    let password = url.split(['@', ':']).nth(2).unwrap();
    assert!(!ended.stderr.contains(password), "{ended:?}");
}

/// R365: known settings stay in effect, and changes that cannot be stored are rejected.
#[test]
fn without_the_database_nodes_continue_and_reject_changes() {
    let here = tempfile::tempdir().unwrap();
    let (server, url) = database();
    let [one, other] =
        [(); 2].map(|()| Serving::start(&mut serve(here.path(), &["--database", &url])));
    assert_eq!(one.patch(&change(30)).0, 200);
    other.wait_until_it_has(CAPACITY, &json!(30));
    server.kill();
    for node in [&one, &other] {
        assert_eq!(takes(node), 200);
        let (status, body) = node.patch(&change(5));
        assert_eq!(status, 503, "{body}");
        assert!(body.contains("urn:tidegate:problem:database"), "{body}");
        assert_eq!(node.setting(CAPACITY), (30.into(), "database".to_owned()));
        assert_eq!((node.ask("/readyz").0, takes(node)), (200, 200));
    }
    server.restart();
    let changed = || (one.patch(&change(6)).0 == 200).then_some(());
    wait_until("the database to be back", changed);
    other.wait_until_it_has(CAPACITY, &json!(6));
}

/// R365: environment and file apply until the database is reachable.
#[test]
fn server_starts_without_its_database_and_applies_it_later() {
    let here = tempfile::tempdir().unwrap();
    let (server, url) = database();
    let set = ["config", "set", CAPACITY, "7", "--database", &url];
    assert_eq!(run(here.path(), &set).code, Some(0));
    server.kill();
    let mut command = serve(here.path(), &["--database", &url]);
    let mut serving = Serving::start(command.env("TIDEGATE_LIMITS_CLIENT_CAPACITY", "9"));
    assert_eq!(serving.setting(CAPACITY), (9.into(), "environment".to_owned()));
    assert_eq!(takes(&serving), 200);
    serving.wait_for("cannot read the database; using environment, file and defaults");
    server.restart();
    serving.wait_until_it_has(CAPACITY, &json!(7));
    assert_eq!(serving.setting(CAPACITY).1, "database");
}
