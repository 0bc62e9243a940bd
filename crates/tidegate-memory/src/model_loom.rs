//! Loom models of two threads: small lists with ordered locks, decided all-or-nothing, and
//! decisions while a segment grows, splits or shrinks.

use std::sync::Arc;

use loom::thread;
use tidegate_core::{Charge, Decision, Limit, Operation, Policy, StoreResponse};

use crate::MemoryStore;
use crate::clock::{CachedClock, Clock, ManualClock};

fn limit(name: &str, capacity: u64) -> Limit {
    Limit::named(name, Policy::per_second(1).capacity(capacity).build().unwrap()).unwrap()
}

fn store() -> MemoryStore {
    store_on(ManualClock::new())
}

fn store_on(clock: impl Clock + 'static) -> MemoryStore {
    MemoryStore::builder().max_memory(1 << 20).clock(clock).seed(7).build().unwrap()
}

fn take(store: &MemoryStore, charges: &[(&Limit, u64)]) -> Decision {
    let charges: Vec<_> =
        charges.iter().map(|(limit, cost)| Charge::new(limit, "key", *cost)).collect();
    match store.execute(&Operation::Take(&charges)).unwrap() {
        StoreResponse::Decision(decision) => decision,
        other => unreachable!("{other:?}"),
    }
}

fn left(store: &MemoryStore, limit: &Limit) -> u64 {
    take(store, &[(limit, 0)]).remaining()
}

#[test]
fn opposite_lists_neither_deadlock_nor_spend_partially() {
    loom::model(|| {
        let (a, b) = (limit("a", 1), limit("b", 1));
        let store = Arc::new(store());
        let other = {
            let (store, a, b) = (store.clone(), a.clone(), b.clone());
            thread::spawn(move || take(&store, &[(&b, 1), (&a, 1)]).is_allowed())
        };
        let mine = take(&store, &[(&a, 1), (&b, 1)]).is_allowed();
        let theirs = other.join().unwrap();
        assert!(mine ^ theirs, "one token each, one winner");
        assert_eq!((left(&store, &a), left(&store, &b)), (0, 0));
    });
}

#[test]
fn denied_list_is_invisible_to_others() {
    loom::model(|| {
        let (client, organization) = (limit("client", 2), limit("organization", 1));
        let store = Arc::new(store());
        let other = {
            let (store, client, organization) =
                (store.clone(), client.clone(), organization.clone());
            thread::spawn(move || take(&store, &[(&client, 2), (&organization, 2)]).is_allowed())
        };
        let mine = take(&store, &[(&client, 1)]);
        assert!(mine.is_allowed(), "the other list can never be granted");
        assert!(!other.join().unwrap());
        assert_eq!((left(&store, &client), left(&store, &organization)), (1, 1));
    });
}

#[test]
fn callers_with_old_and_new_policy_share_one_bucket() {
    loom::model(|| {
        let old = limit("a", 2);
        let policy = Policy::per_second(1).capacity(1).build().unwrap();
        let new = old.revise(policy, tidegate_core::PolicyChange::KeepTokens).unwrap();
        let store = Arc::new(store());
        assert!(take(&store, &[(&old, 1)]).is_allowed());
        let other = {
            let (store, new) = (store.clone(), new.clone());
            thread::spawn(move || take(&store, &[(&new, 1)]).is_allowed())
        };
        let mine = take(&store, &[(&old, 1)]).is_allowed();
        assert!(mine ^ other.join().unwrap(), "one token was left");
        assert_eq!(left(&store, &new), 0);
    });
}

/// Runs a model with a bound on preemptions: growing a segment takes hundreds of steps.
fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 10_000;
    builder.check(model);
}

fn take_key(store: &MemoryStore, limit: &Limit, key: u32) -> bool {
    let key = key.to_string();
    take_all(store, limit, &[&key])
}

fn take_all(store: &MemoryStore, limit: &Limit, keys: &[&str]) -> bool {
    let charges: Vec<_> = keys.iter().map(|key| Charge::new(limit, *key, 1)).collect();
    match store.execute(&Operation::Take(&charges)).unwrap() {
        StoreResponse::Decision(decision) => decision.is_allowed(),
        other => unreachable!("{other:?}"),
    }
}

/// Takes from an existing key while another thread inserts a new one, in a table of `keys` keys.
fn take_while_a_key_is_inserted(keys: u32, clock: impl Clock + 'static) {
    let limit = limit("a", 2);
    let store = Arc::new(store_on(clock));
    for key in 0..keys {
        assert!(take_key(&store, &limit, key));
    }
    let inserter = {
        let (store, limit) = (store.clone(), limit.clone());
        thread::spawn(move || take_key(&store, &limit, keys))
    };
    assert!(take_key(&store, &limit, 0), "its second token");
    assert!(inserter.join().unwrap());
    assert!(!take_key(&store, &limit, 0), "both tokens are spent");
    for key in 1..=keys {
        assert!(take_key(&store, &limit, key), "key {key} has one token left");
        assert!(!take_key(&store, &limit, key), "key {key} has none left");
    }
    assert_eq!(store.len(), keys as usize + 1);
}

#[test]
fn decision_while_a_segment_grows() {
    bounded(|| take_while_a_key_is_inserted(2, ManualClock::new()));
}

#[test]
fn decision_while_a_segment_splits() {
    bounded(|| take_while_a_key_is_inserted(4, ManualClock::new()));
}

#[test]
fn two_inserts_split_a_segment_once() {
    bounded(|| {
        let limit = limit("a", 1);
        let store = Arc::new(store());
        for key in 0..3 {
            assert!(take_key(&store, &limit, key));
        }
        let other = {
            let (store, limit) = (store.clone(), limit.clone());
            thread::spawn(move || take_all(&store, &limit, &["10", "11"]))
        };
        let mine = take_all(&store, &limit, &["11", "12"]);
        assert!(mine ^ other.join().unwrap(), "both want the one token of a key");
        for key in 0..3 {
            assert!(!take_key(&store, &limit, key));
        }
        assert_eq!(store.len(), 5);
    });
}

#[test]
fn decision_while_the_table_shrinks() {
    bounded(|| {
        let limit = limit("a", 2);
        let store = Arc::new(store());
        for key in 0..5 {
            assert!(take_key(&store, &limit, key));
        }
        for key in 2..5_u32 {
            let key = key.to_string();
            let target = tidegate_core::Target::new(&limit, key.as_str());
            store.execute(&Operation::Reset { target }).unwrap();
        }
        let cleaner = {
            let store = store.clone();
            thread::spawn(move || store.cleanup_stale(std::time::Duration::ZERO))
        };
        assert!(take_key(&store, &limit, 0), "its second token");
        assert_eq!(cleaner.join().unwrap(), 0);
        assert!(!take_key(&store, &limit, 0));
        assert!(take_key(&store, &limit, 1));
        assert_eq!(store.len(), 2);
    });
}

/// A monotonic clock is read before the line is locked.
#[test]
fn decision_with_an_early_reading_while_a_segment_splits() {
    bounded(|| take_while_a_key_is_inserted(4, CachedClock::new()));
}

#[test]
fn hold_is_visible_to_later_decisions() {
    loom::model(|| {
        let limit = limit("a", 2);
        let store = Arc::new(store());
        assert!(take_key(&store, &limit, 0));
        let holder = {
            let (store, limit) = (store.clone(), limit.clone());
            thread::spawn(move || {
                let span = std::time::Duration::from_secs(60);
                let target = tidegate_core::Target::new(&limit, "0");
                store.execute(&Operation::Hold { target, span }).unwrap();
                take_key(&store, &limit, 0)
            })
        };
        let _either = take_key(&store, &limit, 0);
        assert!(!holder.join().unwrap(), "the key is held");
        assert!(!take_key(&store, &limit, 0), "for all threads");
    });
}
