//! How many commands a decision costs, and what becomes of the script.

use std::time::Duration;

use tidegate_core::{Answers, Change, Charge, Limit, Operation, Policy, Store as _};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::{Flavor, RedisServer, wait_until};
use tidegate_testkit::subject::block_on;

use crate::fixture::{
    Crowd, after_a_beat, errors_of, granted, left, open, prefix, slow, store, take,
};

/// How often a script was called, heartbeats included.
fn calls(server: &RedisServer) -> u64 {
    server.calls_of("evalsha") + server.calls_of("eval")
}

/// R184, R185: two limiters, one connection, one command for each decision, whatever the list.
#[test]
fn a_decision_is_one_command_on_one_connection() {
    let server = RedisServer::start(Flavor::Redis);
    block_on(async {
        let store = store(&server).await;
        let (cheap, dear) = (slow("cheap", 200), slow("dear", 10));
        // The first use of a limit enrols it.
        let list =
            [Charge::new(&cheap, "a", 1), Charge::new(&dear, "a", 5), Charge::new(&dear, "b", 1)];
        let mut answers = Answers::new();
        store.submit(&[Operation::Take(&list)], &mut answers).await;
        after_a_beat(&server);
        let before = calls(&server);
        for _ in 0..3 {
            let mut answers = Answers::new();
            store.submit(&[Operation::Take(&list[..1])], &mut answers).await;
            store.submit(&[Operation::Peek(&list)], &mut answers).await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        }
        assert_eq!(calls(&server) - before, 6);
        // One connection of the store; the other one asks.
        let clients = server.command(&["CLIENT", "LIST"]).text();
        assert_eq!(clients.lines().count(), 2, "{clients}");
    });
}

/// How many scripts there are: a long one that can do everything, which heartbeats use, and a
/// short one for takes.
const SCRIPTS: u64 = 2;

/// R194, R195: a hundred first calls at once load each script once.
#[test]
fn many_first_calls_load_the_scripts_once() {
    let server = RedisServer::start(Flavor::Redis);
    let limit = slow("client", 40);
    let allowed = block_on(async {
        let store = store(&server).await;
        Crowd::on(std::iter::repeat_n(&store, 100), &limit, 1).allowed().await
    });
    assert_eq!(allowed, 40);
    assert_eq!(server.calls_of("script|load"), SCRIPTS);
    // They waited for the same call, and then went together.
    assert!(calls(&server) < 50, "{} calls", calls(&server));
}

/// R196, R197: the script is gone. The next decision finds that out, has it loaded and is sent
/// once more; nothing is spent twice.
#[test]
fn a_forgotten_script_is_loaded_once_more() {
    let server = RedisServer::start(Flavor::Valkey);
    let limit = slow("client", 10);
    let store = block_on(store(&server));
    block_on(granted(&store, &limit, "a", 1));
    assert_eq!((server.calls_of("script|load"), errors_of(&server, "NOSCRIPT")), (SCRIPTS, 0));
    after_a_beat(&server);
    let _ = server.command(&["SCRIPT", "FLUSH"]);
    let before = server.calls_of("evalsha");
    assert_eq!(block_on(granted(&store, &limit, "a", 1)).outcomes[0].remaining, 8);
    assert_eq!((server.calls_of("script|load"), errors_of(&server, "NOSCRIPT")), (SCRIPTS + 1, 1));
    assert_eq!(server.calls_of("evalsha") - before, 2);
}

/// Where SCRIPT is not permitted the source goes with a call that finds no script; the server
/// keeps it from then on.
#[test]
fn where_scripts_cannot_be_loaded_they_are_sent() {
    let acl = "user plain on >secret ~* +@all -script";
    let server = RedisServer::builder(Flavor::Redis).acl(acl).start();
    let store = open(RedisStore::builder(&server.url_as("plain", "secret")).prefix(prefix()));
    let (store, limit) = (block_on(store), slow("client", 10));
    sent_once(&server, &store, &limit);
    after_a_beat(&server);
    let _ = server.command(&["SCRIPT", "FLUSH"]);
    for expected in [6, 5] {
        assert_eq!(block_on(granted(&store, &limit, "a", 1)).outcomes[0].remaining, expected);
    }
    assert_eq!(sent(&server), SCRIPTS + 1);
}

/// An operator may also have taken SCRIPT away.
#[test]
fn where_there_is_no_script_command_scripts_are_sent() {
    let server = RedisServer::builder(Flavor::Redis).setting("rename-command", "SCRIPT \"\"");
    let server = server.start();
    sent_once(&server, &block_on(store(&server)), &slow("client", 10));
}

/// Spends three of ten tokens, and looks that each script was sent once.
fn sent_once(server: &RedisServer, store: &RedisStore, limit: &Limit) {
    wait_until("the first heartbeat", || store.nodes());
    assert_eq!(sent(server), 1);
    for expected in [9, 8, 7] {
        assert_eq!(block_on(granted(store, limit, "a", 1)).outcomes[0].remaining, expected);
    }
    assert_eq!(sent(server), SCRIPTS);
}

/// How often a script was sent, which is as often as one was not found.
fn sent(server: &RedisServer) -> u64 {
    let sent = server.calls_of("eval");
    assert_eq!(errors_of(server, "NOSCRIPT"), sent);
    sent
}

/// When so many slots will be free that a cost above the capacity fits is no question, however
/// many leases could be asked; and when a lowered limit has room again, only the next of them are.
#[test]
fn many_leases_are_not_looked_at_in_vain() {
    const LEASES: u64 = 1_000;
    let server = RedisServer::start(Flavor::Redis);
    let policy = |slots| Policy::concurrency(slots, Some(Duration::from_secs(600))).unwrap();
    let calls = Limit::named("calls", policy(LEASES)).unwrap();
    let fewer = calls.revise(policy(10), Change::KeepTokens).unwrap();
    let store = block_on(store(&server));
    let looks = |limit: &Limit, cost| {
        let before = server.calls_of("zscore");
        assert!(!block_on(take(&store, limit, "a", cost)).unwrap().is_allowed());
        server.calls_of("zscore") - before
    };
    let one = [Charge::new(&calls, "a", 1)];
    let mut answers = Answers::new();
    let all: Vec<Operation<'_>> = (0..LEASES).map(|_| Operation::Take(&one)).collect();
    block_on(store.submit(&all, &mut answers));
    assert_eq!(block_on(left(&store, &calls, "a")), 0);
    assert!(looks(&calls, LEASES + 1) < 5);
    assert!(looks(&calls, 1) < 10);
    assert!(looks(&fewer, 1) < 300);
}

/// Submissions of any length are cut into calls of some 256 keys: a longer one would stop the
/// server for too long.
#[test]
fn a_long_submission_is_cut_into_calls() {
    let server = RedisServer::start(Flavor::Valkey);
    let limits: Vec<Limit> = (0..16).map(|number| slow(&format!("l{number}"), 100)).collect();
    let list: Vec<Charge<'_>> = limits.iter().map(|limit| Charge::new(limit, "a", 1)).collect();
    let store = block_on(store(&server));
    let mut answers = Answers::new();
    // The first use of a limit enrols it.
    block_on(store.submit(&[Operation::Peek(&list)], &mut answers));
    after_a_beat(&server);
    let before = calls(&server);
    block_on(store.submit(&[Operation::Take(&list); 100], &mut answers));
    assert!((6..=8).contains(&(calls(&server) - before)), "{} calls", calls(&server) - before);
    assert_eq!(answers.len(), 101);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    for limit in &limits {
        assert_eq!(block_on(left(&store, limit, "a")), 0);
    }
}
