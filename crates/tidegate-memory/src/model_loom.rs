//! Every interleaving of two threads on small lists, by loom: locks in order, all-or-nothing.

use std::sync::Arc;

use loom::thread;
use tidegate_core::{Answer, Charge, Decision, Limit, Operation, Policy};

use crate::MemoryStore;
use crate::clock::ManualClock;

fn limit(name: &str, capacity: u64) -> Limit {
    Limit::named(name, Policy::per_second(1).capacity(capacity).build().unwrap()).unwrap()
}

fn store() -> MemoryStore {
    MemoryStore::builder().max_memory(1 << 20).clock(ManualClock::new()).seed(7).build().unwrap()
}

fn take(store: &MemoryStore, charges: &[(&Limit, u64)]) -> Decision {
    let charges: Vec<_> =
        charges.iter().map(|(limit, cost)| Charge::new(limit, "key", *cost)).collect();
    match store.execute(&Operation::Take(&charges)).unwrap() {
        Answer::Decision(decision) => decision,
        other => unreachable!("{other:?}"),
    }
}

fn left(store: &MemoryStore, limit: &Limit) -> u64 {
    take(store, &[(limit, 0)]).remaining()
}

#[test]
fn opposite_lists_neither_deadlock_nor_spend_by_halves() {
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
fn a_denied_list_leaves_no_trace_for_others() {
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
fn a_stale_caller_and_a_policy_change_agree_on_one_bucket() {
    loom::model(|| {
        let old = limit("a", 2);
        let policy = Policy::per_second(1).capacity(1).build().unwrap();
        let new = old.revise(policy, tidegate_core::Change::KeepTokens).unwrap();
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
