//! Servers that are unavailable, stopped, killed, flushed, or out of memory.

use std::time::Duration;

use tidegate_core::{Charge, Limit, Operation, Policy, StoreError, StoreResponse, Target};
use tidegate_redis::{OpenError, RedisStore};
use tidegate_testkit::launch::{Flavor, Proxy, RedisServer, wait_until};
use tidegate_testkit::subject::{Subject as _, block_on, execute, execute_blocking};

use crate::fixture::{
    ConcurrentCallers, TimedStores, error_chain, errors_of, granted, open, prefix, remaining,
    runtime, server_micros, slow_bucket, store, take, wait_for_heartbeat, wait_until_server_time,
};

/// Retries until the store is available again; it reconnects in the background.
fn wait_until_available(store: &RedisStore, limit: &Limit) -> u64 {
    wait_until("the store to be available again", || {
        let decision = block_on(take(store, limit, "probe", 0)).ok()?;
        Some(decision.remaining())
    })
}

/// A store can be opened before its server is available.
#[test]
fn store_opens_before_its_server() {
    let server = RedisServer::start(Flavor::Redis);
    server.kill();
    let limit = slow_bucket("client", 5);
    let store = {
        let _runtime_guard = runtime().enter();
        RedisStore::builder(&server.url()).prefix(prefix()).open().unwrap()
    };
    let error = block_on(async {
        assert!(store.connected().await.is_err());
        take(&store, &limit, "a", 1).await.unwrap_err()
    });
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert!(error_chain(&error).contains("not connected"), "{}", error_chain(&error));
    server.restart();
    assert_eq!(wait_until_available(&store, &limit), 5);
}

/// A killed server: errors, then a connection to the new one, where all buckets are full. The bound
/// is what was taken before, plus one capacity.
#[test]
fn restarted_server_has_full_buckets() {
    let server = RedisServer::start(Flavor::Redis);
    let limit = slow_bucket("client", 5);
    let store = block_on(store(&server));
    assert_eq!(block_on(granted(&store, &limit, "a", 3)).outcomes[0].remaining, 2);
    server.kill();
    let error = block_on(take(&store, &limit, "a", 1)).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    server.restart();
    wait_until_available(&store, &limit);
    assert_eq!(block_on(remaining(&store, &limit, "a")), 5);
    assert!(!block_on(take(&store, &limit, "a", 6)).unwrap().is_allowed());
    assert_eq!(block_on(granted(&store, &limit, "a", 5)).outcomes[0].remaining, 0);
}

/// With an append-only file, spent tokens survive a crash.
#[test]
fn append_only_file_survives_a_crash() {
    let server =
        RedisServer::builder(Flavor::Redis).appendonly().setting("appendfsync", "always").start();
    let limit = slow_bucket("client", 5);
    let store = block_on(store(&server));
    block_on(granted(&store, &limit, "a", 3));
    server.kill();
    server.restart();
    wait_until_available(&store, &limit);
    assert_eq!(block_on(remaining(&store, &limit, "a")), 2);
}

/// A flush under load: no panic, no error, and at most one more capacity.
#[test]
fn flush_grants_at_most_one_more_capacity() {
    let server = RedisServer::start(Flavor::Valkey);
    let limit = slow_bucket("client", 50);
    let allowed = block_on(async {
        let store = store(&server).await;
        let callers = ConcurrentCallers::on(std::iter::repeat_n(&store, 8), &limit, 50);
        let _ = server.command(&["FLUSHALL"]);
        let _ = server.command(&["SCRIPT", "FLUSH"]);
        let allowed = callers.allowed().await;
        assert_eq!(remaining(&store, &limit, "a").await, 0);
        allowed
    });
    assert!((50..=100).contains(&allowed), "{allowed}");
}

/// A stopped server: the store drops the connection after a second, and is exact again when the
/// server continues.
#[test]
fn stopped_server_times_out_and_recovers() {
    let server = RedisServer::start(Flavor::Redis);
    let limit = slow_bucket("client", 5);
    let store = block_on(store(&server));
    block_on(granted(&store, &limit, "a", 1));
    server.stop();
    let error = block_on(take(&store, &limit, "a", 1)).unwrap_err();
    assert!(matches!(error, StoreError::TimedOut), "{error:?}");
    server.cont();
    // The old connection may respond once before it is replaced.
    wait_until_available(&store, &limit);
    let remaining =
        wait_until("the new connection", || block_on(take(&store, &limit, "a", 0)).ok());
    // The call that timed out may have been executed, once; nothing is sent twice.
    let remaining = remaining.remaining();
    assert!((3..=4).contains(&remaining), "{remaining}");
}

/// A slow connection does not change decisions.
#[test]
fn slow_connection_changes_no_decision() {
    let server = RedisServer::start(Flavor::Redis);
    let proxy = Proxy::start(server.address());
    proxy.set_delay(Duration::from_millis(20));
    let limit = slow_bucket("client", 10);
    let allowed = block_on(async {
        let url = server.url_at(proxy.address());
        let store = open(RedisStore::builder(&url).prefix(prefix())).await;
        ConcurrentCallers::on(std::iter::repeat_n(&store, 15), &limit, 1).allowed().await
    });
    assert_eq!(allowed, 10);
}

/// A connection cut while idle is reopened.
#[test]
fn cut_connection_is_reopened() {
    let server = RedisServer::start(Flavor::Redis);
    let proxy = Proxy::start(server.address());
    let limit = slow_bucket("client", 5);
    let url = server.url_at(proxy.address());
    let store = block_on(open(RedisStore::builder(&url).prefix(prefix())));
    block_on(granted(&store, &limit, "a", 1));
    proxy.cut();
    wait_until_available(&store, &limit);
    assert_eq!(block_on(remaining(&store, &limit, "a")), 4);
}

/// A server without memory refuses, and nothing is spent.
#[test]
fn full_server_refuses() {
    let server =
        RedisServer::builder(Flavor::Redis).setting("maxmemory-policy", "noeviction").start();
    let limit = slow_bucket("client", 5);
    block_on(async {
        let store = store(&server).await;
        granted(&store, &limit, "a", 1).await;
        let _ = server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let error = take(&store, &limit, "a", 1).await.unwrap_err();
        assert!(error_chain(&error).contains("refused"), "{}", error_chain(&error));
        let _ = server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(remaining(&store, &limit, "a").await, 4);
    });
}

/// A server without memory refuses heartbeats too. The connection stays open, and operations that
/// need no memory work: peek and release.
#[test]
fn full_server_keeps_its_connection() {
    let server =
        RedisServer::builder(Flavor::Redis).setting("maxmemory-policy", "noeviction").start();
    let proxy = Proxy::start(server.address());
    let limit = slow_bucket("client", 5);
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
        let answer = execute(&store, Operation::Peek(&one)).await.unwrap();
        let StoreResponse::Decision(decision) = answer else { panic!("{answer:?}") };
        assert_eq!(decision.remaining(), 3, "four are left, and one would be taken");
        let targets = [Target::new(&calls, "a")];
        let release = Operation::Release { targets: &targets, receipt: &receipt };
        assert_eq!(execute(&store, release).await.unwrap(), StoreResponse::Slots(2));
        assert!(take(&store, &limit, "a", 1).await.is_err());
    });
    assert_eq!(proxy.accepted(), 1);
}

/// Two calls are in flight on an unresponsive connection. The first timeout reopens it; the second
/// one must not break the new connection.
#[test]
fn late_timeout_does_not_break_the_new_connection() {
    let server = RedisServer::start(Flavor::Redis);
    let proxy = Proxy::start(server.address());
    let limit = slow_bucket("client", 50);
    let url = server.url_at(proxy.address());
    let store = block_on(open(RedisStore::builder(&url).prefix(prefix())));
    block_on(granted(&store, &limit, "a", 1));
    wait_for_heartbeat(&server);
    // From now on, replies on this connection arrive too late.
    proxy.set_delays(Duration::ZERO, Duration::from_secs(60));
    let call = || {
        let (store, limit) = (store.clone(), limit.clone());
        runtime().spawn(async move { take(&store, &limit, "a", 1).await.map(drop) })
    };
    let first = call();
    wait_until_server_time(&server, server_micros(&server) + 500_000);
    let second = call();
    let error = block_on(first).unwrap().unwrap_err();
    proxy.set_delay(Duration::ZERO);
    assert!(matches!(error, StoreError::TimedOut), "{error:?}");
    wait_until_available(&store, &limit);
    let connections = proxy.accepted();
    let _ = block_on(second).unwrap();
    for _ in 0..50 {
        assert!((47..=49).contains(&block_on(remaining(&store, &limit, "a"))));
    }
    assert_eq!(proxy.accepted(), connections);
}

/// A server clock that steps back a day grants nothing, and blocks keys only briefly.
#[test]
fn clock_that_steps_back_grants_nothing() {
    const DAY: u64 = 86_400_000_000_000;
    const ORIGIN: u64 = 1_699_920_000_000_000_000;
    let policy = Policy::per_second(1).capacity(10).max_horizon(Duration::ZERO).build().unwrap();
    let limit = Limit::named("client", policy).unwrap();
    let stores = block_on(TimedStores::new(Flavor::Redis));
    let one = [Charge::new(&limit, "a", 1)];
    let take_one = || {
        let answer = execute_blocking(stores.store(), Operation::Take(&one)).unwrap();
        let StoreResponse::Decision(decision) = answer else { panic!("{answer:?}") };
        decision
    };
    block_on(stores.set_time(ORIGIN + DAY));
    assert!((0..10).all(|_| take_one().is_allowed()));
    block_on(stores.set_time(ORIGIN));
    let denied = take_one();
    assert!(!denied.is_allowed());
    // At most the maximum debt, not a day.
    let wait = denied.retry().unwrap().after().unwrap();
    assert!(wait <= Duration::from_secs(20), "{wait:?}");
}

/// When its runtime has ended, operations of a store fail.
#[test]
fn store_fails_after_its_runtime_has_ended() {
    let server = RedisServer::start(Flavor::Redis);
    let limit = slow_bucket("client", 5);
    let own_runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = own_runtime.block_on(async {
        let store = RedisStore::builder(&server.url()).prefix(prefix()).open().unwrap();
        store.connected().await.unwrap();
        granted(&store, &limit, "a", 1).await;
        store
    });
    drop(own_runtime);
    let error = block_on(take(&store, &limit, "a", 1)).unwrap_err();
    assert!(error_chain(&error).contains("runtime"), "{}", error_chain(&error));
}

#[test]
fn open_errors_name_the_cause_without_secrets() {
    let open = |url: &str| RedisStore::builder(url).open();
    assert!(matches!(open("redis://127.0.0.1"), Err(OpenError::NoRuntime)));
    let _runtime_guard = runtime().enter();
    for bad in ["", "nonsense", "http://user:hunter2@host", "redis://:hunter2@[::bad"] {
        let error = open(bad).unwrap_err();
        assert!(matches!(error, OpenError::Address { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
    let builder = RedisStore::builder("redis://:hunter2@127.0.0.1:1").prefix("a{b");
    assert!(!format!("{builder:?}").contains("hunter2"));
    assert!(matches!(builder.open(), Err(OpenError::Prefix(_))));
}
