//! Limits that are retired and come back.

use std::time::Duration;

use tidegate::clock::ManualClock;
use tidegate::{Engine, MemoryStore, Policy, PolicyChange, StoreHandle};

fn policy(capacity: u64) -> Policy {
    Policy::per_minute(1).capacity(capacity).build().unwrap()
}

fn left(engine: &Engine, name: &str) -> u64 {
    engine.find(name).unwrap().peek("alice").cost(0).now().unwrap().remaining()
}

#[test]
fn a_restored_limit_continues_where_it_was() {
    let engine = Engine::new();
    let first = engine.limiter("client", policy(10)).unwrap();
    first.reconfigure(policy(8), PolicyChange::KeepTokens).unwrap();
    assert!(first.take("alice").cost(6).now().unwrap().is_allowed());
    assert!(engine.retire("client"));
    assert!(!engine.retire("client"), "already retired");
    assert!(engine.find("client").is_none());

    // The same policy continues in its generation, another one starts the next.
    engine.limiter("client", policy(8)).unwrap();
    assert_eq!((left(&engine, "client"), engine.limits()[0].generation()), (2, 1));
    assert!(engine.retire("client"));
    engine.limiter("client", policy(5)).unwrap();
    assert_eq!((left(&engine, "client"), engine.limits()[0].generation()), (2, 2));
    assert_eq!(engine.limits().len(), 1);
}

#[test]
fn retired_limits_are_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let engine = Engine::new();
    let client = engine.limiter("client", policy(10)).unwrap();
    client.reconfigure(policy(8), PolicyChange::KeepTokens).unwrap();
    assert!(client.take("alice").cost(7).now().unwrap().is_allowed());
    engine.retire("client");
    assert_eq!(engine.limits()[0].name(), "client");
    engine.save(&path).unwrap();

    let (store, _) = MemoryStore::builder().restore(&path).unwrap();
    let engine = Engine::on(store);
    engine.limiter("client", policy(8)).unwrap();
    assert_eq!(left(&engine, "client"), 1);
}

/// Names come from callers where each has an account: what is remembered of them is bounded.
#[test]
fn the_number_of_remembered_retired_limits_is_bounded() {
    const MAX_RETIRED: usize = 16_384;
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let engine = Engine::on(store);
    let oldest = engine.limiter("oldest", policy(10)).unwrap();
    oldest.reconfigure(policy(8), PolicyChange::KeepTokens).unwrap();
    assert!(oldest.take("alice").cost(1).now().unwrap().is_allowed());
    engine.retire("oldest");
    drop(oldest);
    for number in 0..MAX_RETIRED {
        let name = format!("other-{number}");
        engine.limiter(&name, policy(1)).unwrap();
        engine.retire(&name);
    }
    assert_eq!(engine.limits().len(), MAX_RETIRED);
    // It was forgotten, so its bucket counts as empty: never in the caller's favour.
    let again = engine.limiter("oldest", policy(8)).unwrap();
    assert_eq!(again.limit().generation(), 0);
    assert!(!again.take("alice").now().unwrap().is_allowed());
    clock.advance(Duration::from_secs(60));
    assert!(again.take("alice").now().unwrap().is_allowed());
}

/// Two live limits of one name would count their revisions separately, and read each other's
/// buckets under the wrong policy.
#[test]
fn limiters_of_a_retired_limit_follow_the_restored_one() {
    let engine = Engine::new();
    let old = engine.limiter("client", policy(10)).unwrap();
    engine.retire("client");
    let new = engine.limiter("client", policy(6)).unwrap();
    assert_eq!(old.policy(), policy(6));
    old.reconfigure(policy(3), PolicyChange::KeepTokens).unwrap();
    assert_eq!((new.policy(), new.limit().generation()), (policy(3), 2));
    engine.retire("client");
    old.reconfigure(policy(4), PolicyChange::KeepTokens).unwrap();
    assert_eq!(engine.limits()[0].generation(), 3, "the current generation");
}

#[test]
fn retiring_one_name_repeatedly_forgets_no_other() {
    let engine = Engine::new();
    let client = engine.limiter("client", policy(9)).unwrap();
    assert!(client.take("alice").cost(9).now().unwrap().is_allowed());
    engine.retire("client");
    for _ in 0..20_000 {
        engine.limiter("other", policy(1)).unwrap();
        engine.retire("other");
    }
    engine.limiter("client", policy(9)).unwrap();
    assert_eq!(left(&engine, "client"), 0);
    assert_eq!(engine.limits().len(), 2);
}

#[tokio::test]
async fn now_on_a_shared_store_fails_without_effect() {
    let store = std::sync::Arc::new(MemoryStore::new());
    let engine = Engine::on(StoreHandle::shared(store.clone()));
    let limiter = engine.limiter("client", policy(9)).unwrap();
    let refused = limiter.take("alice").now().unwrap_err();
    assert!(matches!(refused, tidegate::StoreError::MustAwait), "{refused}");
    assert!(limiter.take_bare(&limiter.snapshot(), "alice", 1).is_none());
    assert!(engine.save("/nowhere").is_err());
    assert_eq!(store.len(), 0);
    assert_eq!(limiter.take("alice").await.unwrap().remaining(), 8);
}
