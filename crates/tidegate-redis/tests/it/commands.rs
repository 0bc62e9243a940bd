//! Number of commands per decision, and loading of the scripts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis::Client;
use tidegate_core::{Charge, Limit, Operation, Policy, PolicyChange, Store as _, StoreResponses};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::{Flavor, RedisServer, wait_until};
use tidegate_testkit::subject::block_on;

use crate::fixture::{
    ConcurrentCallers, error_chain, errors_of, granted, open, prefix, remaining, slow_bucket,
    store, take, wait_for_heartbeat,
};

/// How often a script was called, heartbeats included.
fn calls(server: &RedisServer) -> u64 {
    server.command_calls("evalsha") + server.command_calls("eval")
}

/// R184, R185: two limiters, one connection, one command per decision, whatever the list.
#[test]
fn decision_is_one_command_on_one_connection() {
    let server = RedisServer::start(Flavor::Redis);
    block_on(async {
        let store = store(&server).await;
        let (cheap, expensive) = (slow_bucket("cheap", 200), slow_bucket("expensive", 10));
        // The first use of a limit syncs its policy.
        let list = [
            Charge::new(&cheap, "a", 1),
            Charge::new(&expensive, "a", 5),
            Charge::new(&expensive, "b", 1),
        ];
        let mut answers = StoreResponses::new();
        store.submit(&[Operation::Take(&list)], &mut answers).await;
        wait_for_heartbeat(&server);
        let before = calls(&server);
        for _ in 0..3 {
            let mut answers = StoreResponses::new();
            store.submit(&[Operation::Take(&list[..1])], &mut answers).await;
            store.submit(&[Operation::Peek(&list)], &mut answers).await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        }
        assert_eq!(calls(&server) - before, 6);
        // One connection of the store, and one of this command.
        let clients = server.command(&["CLIENT", "LIST"]).text();
        assert_eq!(clients.lines().count(), 2, "{clients}");
    });
}

/// Number of scripts: a long one for everything, which heartbeats use, and a short one for takes.
const SCRIPTS: u64 = 2;

/// R194, R195: a hundred concurrent first calls load each script once.
#[test]
fn concurrent_first_calls_load_the_scripts_once() {
    let server = RedisServer::start(Flavor::Redis);
    let limit = slow_bucket("client", 40);
    let allowed = block_on(async {
        let store = store(&server).await;
        ConcurrentCallers::on(std::iter::repeat_n(&store, 100), &limit, 1).allowed().await
    });
    assert_eq!(allowed, 40);
    assert_eq!(server.command_calls("script|load"), SCRIPTS);
    // They waited for the same call, and then were batched.
    assert!(calls(&server) < 50, "{} calls", calls(&server));
}

/// R196, R197: the server lost the script. The next decision notices, loads it and is sent once
/// more; nothing is spent twice.
#[test]
fn lost_script_is_loaded_again_once() {
    let server = RedisServer::start(Flavor::Valkey);
    let limit = slow_bucket("client", 10);
    let store = block_on(store(&server));
    block_on(granted(&store, &limit, "a", 1));
    assert_eq!((server.command_calls("script|load"), errors_of(&server, "NOSCRIPT")), (SCRIPTS, 0));
    wait_for_heartbeat(&server);
    let _ = server.command(&["SCRIPT", "FLUSH"]);
    let before = server.command_calls("evalsha");
    assert_eq!(block_on(granted(&store, &limit, "a", 1)).outcomes[0].remaining, 8);
    assert_eq!(
        (server.command_calls("script|load"), errors_of(&server, "NOSCRIPT")),
        (SCRIPTS + 1, 1)
    );
    assert_eq!(server.command_calls("evalsha") - before, 2);
}

/// R197: the server loses the script between its load and the call that was sent again. That call
/// fails, instead of being sent a third time.
#[test]
fn script_lost_twice_is_an_error() {
    let server = RedisServer::start(Flavor::Redis);
    let (store, limit) = (block_on(store(&server)), slow_bucket("client", 100_000));
    block_on(granted(&store, &limit, "a", 1));
    wait_for_heartbeat(&server);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut connection = Client::open(server.url()).unwrap().get_connection().unwrap();
            let mut flushes = redis::pipe();
            for _ in 0..100 {
                flushes.cmd("SCRIPT").arg("FLUSH").ignore();
            }
            while !done.load(Ordering::Relaxed) {
                flushes.exec(&mut connection).unwrap();
            }
        });
        let lost = "lost the script right after it was loaded";
        wait_until("a call that finds no script twice", || {
            let error = block_on(take(&store, &limit, "a", 1)).err()?;
            error_chain(&error).contains(lost).then_some(())
        });
        done.store(true, Ordering::Relaxed);
    });
    assert!(block_on(take(&store, &limit, "a", 1)).unwrap().is_allowed());
}

/// R197: a load that fails is tried again by the next call.
#[test]
fn failed_load_is_retried_by_the_next_call() {
    let server = RedisServer::builder(Flavor::Redis).setting("busy-reply-threshold", "1").start();
    let (store, limit) = (block_on(store(&server)), slow_bucket("client", 10));
    // Ends by itself if this test fails.
    let source = "for _ = 1, 1e10 do end";
    thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut connection = Client::open(server.url()).unwrap().get_connection().unwrap();
            redis::cmd("EVAL").arg(source).arg(0).exec(&mut connection)
        });
        let is_busy = || format!("{:?}", server.command(&["PING"])).contains("BUSY").then_some(());
        wait_until("a server that is busy with a script", is_busy);
        let error = block_on(take(&store, &limit, "a", 1)).unwrap_err();
        assert!(error_chain(&error).contains("BUSY"), "{}", error_chain(&error));
        let _ = server.command(&["SCRIPT", "KILL"]);
        assert!(busy.join().unwrap().is_err(), "the script was ended");
    });
    assert_eq!(block_on(granted(&store, &limit, "a", 1)).outcomes[0].remaining, 9);
}

/// If SCRIPT is not permitted, the source is sent with a call that finds no script; the server
/// caches it.
#[test]
fn scripts_are_sent_if_loading_is_not_permitted() {
    let acl = "user plain on >secret ~* +@all -script";
    let server = RedisServer::builder(Flavor::Redis).acl(acl).start();
    let store = open(RedisStore::builder(&server.url_as("plain", "secret")).prefix(prefix()));
    let (store, limit) = (block_on(store), slow_bucket("client", 10));
    check_scripts_sent_once(&server, &store, &limit);
    wait_for_heartbeat(&server);
    let _ = server.command(&["SCRIPT", "FLUSH"]);
    for expected in [6, 5] {
        assert_eq!(block_on(granted(&store, &limit, "a", 1)).outcomes[0].remaining, expected);
    }
    assert_eq!(eval_count(&server), SCRIPTS + 1);
}

/// An operator may have disabled SCRIPT.
#[test]
fn scripts_are_sent_if_the_script_command_is_disabled() {
    let server = RedisServer::builder(Flavor::Redis).setting("rename-command", "SCRIPT \"\"");
    let server = server.start();
    check_scripts_sent_once(&server, &block_on(store(&server)), &slow_bucket("client", 10));
}

/// Spends three of ten tokens, and checks that each script was sent once.
fn check_scripts_sent_once(server: &RedisServer, store: &RedisStore, limit: &Limit) {
    wait_until("the first heartbeat", || store.nodes());
    assert_eq!(eval_count(server), 1);
    for expected in [9, 8, 7] {
        assert_eq!(block_on(granted(store, limit, "a", 1)).outcomes[0].remaining, expected);
    }
    assert_eq!(eval_count(server), SCRIPTS);
}

/// How often a script was sent, which equals how often one was not found.
fn eval_count(server: &RedisServer) -> u64 {
    let eval_count = server.command_calls("eval");
    assert_eq!(errors_of(server, "NOSCRIPT"), eval_count);
    eval_count
}

/// For a cost above the capacity no leases are scanned; for a lowered limit only the next leases to
/// expire are.
#[test]
fn leases_are_not_scanned_needlessly() {
    const LEASES: u64 = 1_000;
    let server = RedisServer::start(Flavor::Redis);
    let policy = |slots| Policy::concurrency(slots, Some(Duration::from_secs(600))).unwrap();
    let calls = Limit::named("calls", policy(LEASES)).unwrap();
    let fewer = calls.revise(policy(10), PolicyChange::KeepTokens).unwrap();
    let store = block_on(store(&server));
    let zscore_calls = |limit: &Limit, cost| {
        let before = server.command_calls("zscore");
        assert!(!block_on(take(&store, limit, "a", cost)).unwrap().is_allowed());
        server.command_calls("zscore") - before
    };
    let one = [Charge::new(&calls, "a", 1)];
    let mut answers = StoreResponses::new();
    let all: Vec<Operation<'_>> = (0..LEASES).map(|_| Operation::Take(&one)).collect();
    block_on(store.submit(&all, &mut answers));
    assert_eq!(block_on(remaining(&store, &calls, "a")), 0);
    assert!(zscore_calls(&calls, LEASES + 1) < 5);
    assert!(zscore_calls(&calls, 1) < 10);
    assert!(zscore_calls(&fewer, 1) < 300);
}

/// Long submissions are split into calls of about 256 keys, since a longer call would block the
/// server for too long.
#[test]
fn long_submission_is_split_into_calls() {
    let server = RedisServer::start(Flavor::Valkey);
    let limits: Vec<Limit> =
        (0..16).map(|number| slow_bucket(&format!("l{number}"), 100)).collect();
    let list: Vec<Charge<'_>> = limits.iter().map(|limit| Charge::new(limit, "a", 1)).collect();
    let store = block_on(store(&server));
    let mut answers = StoreResponses::new();
    // The first use of a limit syncs its policy.
    block_on(store.submit(&[Operation::Peek(&list)], &mut answers));
    wait_for_heartbeat(&server);
    let before = calls(&server);
    block_on(store.submit(&[Operation::Take(&list); 100], &mut answers));
    assert!((6..=8).contains(&(calls(&server) - before)), "{} calls", calls(&server) - before);
    assert_eq!(answers.len(), 101);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    for limit in &limits {
        assert_eq!(block_on(remaining(&store, limit, "a")), 0);
    }
}
