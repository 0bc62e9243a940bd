//! Servers that are not there, stop, die, forget, or have no room.

use std::time::Duration;

use tidegate_core::{Answer, Charge, Limit, Operation, Policy, StoreError, Target};
use tidegate_redis::{OpenError, RedisStore};
use tidegate_testkit::launch::{Flavor, Proxy, RedisServer, wait_until};
use tidegate_testkit::subject::{Subject as _, ask, ask_blocking, block_on};

use crate::fixture::{
    Crowd, Timed, after_a_beat, errors_of, granted, left, micros, open, prefix, runtime, slow,
    store, story, take, wait_until_late,
};

/// Tries until the store answers again; it connects in the background.
fn again(store: &RedisStore, limit: &Limit) -> u64 {
    wait_until("the store to answer again", || {
        let decision = block_on(take(store, limit, "probe", 0)).ok()?;
        Some(decision.remaining())
    })
}

/// A server that is not there yet is no reason not to open a store.
#[test]
fn a_store_opens_before_its_server() {
    let server = RedisServer::start(Flavor::Redis);
    server.kill();
    let limit = slow("client", 5);
    let store = {
        let _inside = runtime().enter();
        RedisStore::builder(&server.url()).prefix(prefix()).open().unwrap()
    };
    let error = block_on(async {
        assert!(store.connected().await.is_err());
        take(&store, &limit, "a", 1).await.unwrap_err()
    });
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert!(story(&error).contains("not connected"), "{}", story(&error));
    server.start_again();
    assert_eq!(again(&store, &limit), 5);
}

/// A killed server: errors, then a connection to the new one, where everybody is full again. That
/// is the bound: what was taken before, and once more the capacity.
#[test]
fn a_killed_server_comes_back_empty() {
    let server = RedisServer::start(Flavor::Redis);
    let limit = slow("client", 5);
    let store = block_on(store(&server));
    assert_eq!(block_on(granted(&store, &limit, "a", 3)).outcomes[0].remaining, 2);
    server.kill();
    let error = block_on(take(&store, &limit, "a", 1)).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    server.start_again();
    again(&store, &limit);
    assert_eq!(block_on(left(&store, &limit, "a")), 5);
    assert!(!block_on(take(&store, &limit, "a", 6)).unwrap().is_allowed());
    assert_eq!(block_on(granted(&store, &limit, "a", 5)).outcomes[0].remaining, 0);
}

/// With an append-only file what was spent survives the crash.
#[test]
fn what_the_server_wrote_down_survives_its_crash() {
    let server =
        RedisServer::builder(Flavor::Redis).appendonly().setting("appendfsync", "always").start();
    let limit = slow("client", 5);
    let store = block_on(store(&server));
    block_on(granted(&store, &limit, "a", 3));
    server.kill();
    server.start_again();
    again(&store, &limit);
    assert_eq!(block_on(left(&store, &limit, "a")), 2);
}

/// Everything is flushed under load: no panic, no error, and at most one more capacity.
#[test]
fn flushing_everything_gives_at_most_one_more_capacity() {
    let server = RedisServer::start(Flavor::Valkey);
    let limit = slow("client", 50);
    let allowed = block_on(async {
        let store = store(&server).await;
        let crowd = Crowd::on(std::iter::repeat_n(&store, 8), &limit, 50);
        let _ = server.command(&["FLUSHALL"]);
        let _ = server.command(&["SCRIPT", "FLUSH"]);
        let allowed = crowd.allowed().await;
        assert_eq!(left(&store, &limit, "a").await, 0);
        allowed
    });
    assert!((50..=100).contains(&allowed), "{allowed}");
}

/// A server that does not move: the store gives the line up after a second, and is exact again
/// when the server goes on.
#[test]
fn a_stopped_server_is_given_up_and_found_again() {
    let server = RedisServer::start(Flavor::Redis);
    let limit = slow("client", 5);
    let store = block_on(store(&server));
    block_on(granted(&store, &limit, "a", 1));
    server.stop();
    let error = block_on(take(&store, &limit, "a", 1)).unwrap_err();
    assert!(matches!(error, StoreError::TimedOut), "{error:?}");
    server.cont();
    // The old connection may answer once before it is given up for a new one.
    again(&store, &limit);
    let left = wait_until("the new connection", || block_on(take(&store, &limit, "a", 0)).ok());
    // The call that timed out may have been carried out, once; nothing is sent twice.
    let left = left.remaining();
    assert!((3..=4).contains(&left), "{left}");
}

/// A slow line is slow, not wrong.
#[test]
fn a_slow_line_changes_no_decision() {
    let server = RedisServer::start(Flavor::Redis);
    let proxy = Proxy::start(server.address());
    proxy.set_delay(Duration::from_millis(20));
    let limit = slow("client", 10);
    let allowed = block_on(async {
        let url = server.url_at(proxy.address());
        let store = open(RedisStore::builder(&url).prefix(prefix())).await;
        Crowd::on(std::iter::repeat_n(&store, 15), &limit, 1).allowed().await
    });
    assert_eq!(allowed, 10);
}

/// A line that is cut while idle is mended before the next but one call.
#[test]
fn a_cut_line_is_mended() {
    let server = RedisServer::start(Flavor::Redis);
    let proxy = Proxy::start(server.address());
    let limit = slow("client", 5);
    let url = server.url_at(proxy.address());
    let store = block_on(open(RedisStore::builder(&url).prefix(prefix())));
    block_on(granted(&store, &limit, "a", 1));
    proxy.cut();
    again(&store, &limit);
    assert_eq!(block_on(left(&store, &limit, "a")), 4);
}

/// A server without room refuses, and nothing is spent.
#[test]
fn a_full_server_refuses() {
    let server =
        RedisServer::builder(Flavor::Redis).setting("maxmemory-policy", "noeviction").start();
    let limit = slow("client", 5);
    block_on(async {
        let store = store(&server).await;
        granted(&store, &limit, "a", 1).await;
        let _ = server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let error = take(&store, &limit, "a", 1).await.unwrap_err();
        assert!(story(&error).contains("refused"), "{}", story(&error));
        let _ = server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(left(&store, &limit, "a").await, 4);
    });
}

/// A server without room refuses heartbeats too. The connection is well all the same, and what
/// needs no room is answered: what is left, and slots that come back.
#[test]
fn a_full_server_keeps_its_connection() {
    let server =
        RedisServer::builder(Flavor::Redis).setting("maxmemory-policy", "noeviction").start();
    let proxy = Proxy::start(server.address());
    let limit = slow("client", 5);
    let calls = Limit::named("calls", Policy::concurrency(2, None).unwrap()).unwrap();
    let url = server.url_at(proxy.address());
    let store = block_on(open(RedisStore::builder(&url).prefix(prefix())));
    let receipt = block_on(async {
        granted(&store, &limit, "a", 1).await;
        granted(&store, &calls, "a", 2).await.receipt
    });
    let _ = server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let before = errors_of(&server, "OOM");
    wait_until("three heartbeats to be refused", || {
        (errors_of(&server, "OOM") >= before + 3).then_some(())
    });
    block_on(async {
        let one = [Charge::new(&limit, "a", 1)];
        let answer = ask(&store, Operation::Peek(&one)).await.unwrap();
        let Answer::Decision(decision) = answer else { panic!("{answer:?}") };
        assert_eq!(decision.remaining(), 3, "four were left, and one would be taken");
        let targets = [Target::new(&calls, "a")];
        let release = Operation::Release { targets: &targets, receipt: &receipt };
        assert_eq!(ask(&store, release).await.unwrap(), Answer::Slots(2));
        assert!(take(&store, &limit, "a", 1).await.is_err());
    });
    assert_eq!(proxy.accepted(), 1);
}

/// Two calls are under way on a line that has fallen silent. The first one to time out has the
/// line made anew; the second one, when its time is out too, must not break the new line.
#[test]
fn a_late_time_out_does_not_break_the_new_line() {
    let server = RedisServer::start(Flavor::Redis);
    let proxy = Proxy::start(server.address());
    let limit = slow("client", 50);
    let url = server.url_at(proxy.address());
    let store = block_on(open(RedisStore::builder(&url).prefix(prefix())));
    block_on(granted(&store, &limit, "a", 1));
    after_a_beat(&server);
    // What is answered from now on comes too late, and whatever follows on the same line with it.
    proxy.set_delays(Duration::ZERO, Duration::from_secs(60));
    let call = || {
        let (store, limit) = (store.clone(), limit.clone());
        runtime().spawn(async move { take(&store, &limit, "a", 1).await.map(drop) })
    };
    let first = call();
    wait_until_late(&server, micros(&server) + 500_000);
    let second = call();
    let error = block_on(first).unwrap().unwrap_err();
    proxy.set_delay(Duration::ZERO);
    assert!(matches!(error, StoreError::TimedOut), "{error:?}");
    again(&store, &limit);
    let lines = proxy.accepted();
    let _ = block_on(second).unwrap();
    for _ in 0..50 {
        assert!((47..=49).contains(&block_on(left(&store, &limit, "a"))));
    }
    assert_eq!(proxy.accepted(), lines);
}

/// A server whose time steps back a day grants nothing for it, and locks nobody out for long.
#[test]
fn time_that_steps_back_grants_nothing() {
    const DAY: u64 = 86_400_000_000_000;
    const ORIGIN: u64 = 1_699_920_000_000_000_000;
    let policy = Policy::per_second(1).capacity(10).max_horizon(Duration::ZERO).build().unwrap();
    let limit = Limit::named("client", policy).unwrap();
    let timed = block_on(Timed::new(Flavor::Redis));
    let one = [Charge::new(&limit, "a", 1)];
    let takes = || {
        let answer = ask_blocking(timed.store(), Operation::Take(&one)).unwrap();
        let Answer::Decision(decision) = answer else { panic!("{answer:?}") };
        decision
    };
    block_on(timed.set_time(ORIGIN + DAY));
    assert!((0..10).all(|_| takes().is_allowed()));
    block_on(timed.set_time(ORIGIN));
    let denied = takes();
    assert!(!denied.is_allowed());
    // Not a day: the deepest debt at most.
    let wait = denied.retry().unwrap().after().unwrap();
    assert!(wait <= Duration::from_secs(20), "{wait:?}");
}

/// A runtime that ends takes its connection along: callers are told.
#[test]
fn a_store_outlives_its_runtime_as_an_error() {
    let server = RedisServer::start(Flavor::Redis);
    let limit = slow("client", 5);
    let own = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = own.block_on(async {
        let store = RedisStore::builder(&server.url()).prefix(prefix()).open().unwrap();
        store.connected().await.unwrap();
        granted(&store, &limit, "a", 1).await;
        store
    });
    drop(own);
    let error = block_on(take(&store, &limit, "a", 1)).unwrap_err();
    assert!(story(&error).contains("runtime"), "{}", story(&error));
}

#[test]
fn what_cannot_be_opened_says_why_and_keeps_secrets() {
    let open = |url: &str| RedisStore::builder(url).open();
    assert!(matches!(open("redis://127.0.0.1"), Err(OpenError::NoRuntime)));
    let _inside = runtime().enter();
    for bad in ["", "nonsense", "http://user:hunter2@host", "redis://:hunter2@[::bad"] {
        let error = open(bad).unwrap_err();
        assert!(matches!(error, OpenError::Address { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
    let builder = RedisStore::builder("redis://:hunter2@127.0.0.1:1").prefix("a{b");
    assert!(!format!("{builder:?}").contains("hunter2"));
    assert!(matches!(builder.open(), Err(OpenError::Prefix(_))));
}
