//! Keys keep their usage while the table grows, splits, is swept and shrinks.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Key, Limit, Operation, Policy, Target};
use tidegate_memory::MemoryStore;
use tidegate_memory::clock::ManualClock;

const AMOUNT: u64 = 1_000_000;

fn allowance() -> Limit {
    Limit::named("allowance", Policy::allowance(AMOUNT).unwrap()).unwrap()
}

fn key(number: u64) -> String {
    format!("user:{number:08}")
}

fn spend(store: &MemoryStore, limit: &Limit, number: u64, cost: u64) -> u64 {
    let decision = store.take_one(limit, Key::new(&key(number)), cost);
    assert!(decision.is_allowed(), "key {number}");
    AMOUNT - decision.remaining()
}

/// From one line to hundreds of segments and back: no key is lost or counted twice.
#[test]
fn no_key_is_lost_while_the_table_grows_and_shrinks() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let limit = allowance();
    let brisk = Limit::named("brisk", Policy::per_second(1).capacity(1).build().unwrap()).unwrap();
    let keys = 300_000;
    for number in 0..keys {
        assert_eq!(spend(&store, &limit, number, number % 7 + 1), number % 7 + 1);
        assert!(store.take_one(&brisk, Key::new(&key(number)), 1).is_allowed());
    }
    let stats = store.stats();
    assert_eq!((stats.keys as u64, stats.inserted), (keys * 2, keys * 2));
    assert_eq!((stats.overflowed, stats.evicted), (0, 0));
    let each = stats.memory_bytes as u64 / (keys * 2);
    assert!(each <= 48, "{each} bytes a key");

    clock.advance(Duration::from_secs(1));
    assert_eq!(store.cleanup_stale(Duration::ZERO) as u64, keys);
    assert!(store.stats().memory_bytes < stats.memory_bytes * 6 / 10, "memory is released");
    for number in 0..keys {
        assert_eq!(spend(&store, &limit, number, 0), number % 7 + 1, "key {number}");
    }
    for number in (0..keys).filter(|number| number % 64 > 0) {
        let key = key(number);
        store.execute(&Operation::Reset { target: Target::new(&limit, key.as_str()) }).unwrap();
    }
    store.cleanup_stale(Duration::ZERO);
    let few = store.stats();
    assert_eq!(few.keys as u64, keys.div_ceil(64));
    assert!(few.memory_bytes < stats.memory_bytes / 20, "{few:?} after {stats:?}");
    for number in 0..keys {
        let used = if number % 64 > 0 { 0 } else { number % 7 + 1 };
        assert_eq!(spend(&store, &limit, number, 0), used, "key {number}");
    }
    store.clear();
    let nothing = store.stats();
    assert_eq!((nothing.keys, nothing.inserted), (0, stats.inserted));
}

#[derive(Clone, Debug)]
enum Step {
    Use(usize, u64),
    Reset(usize),
    Clean,
    Flood(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..400_usize;
    let step = prop_oneof![
        12 => (key(), 1..5_u64).prop_map(|(key, cost)| Step::Use(key, cost)),
        4 => key().prop_map(Step::Reset),
        1 => Just(Step::Clean),
        1 => (1_000..2_000_u64).prop_map(Step::Flood),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    /// The usage of a key is unaffected by what happens to other keys.
    #[test]
    fn table_behaves_like_a_map(steps in steps()) {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().max_memory(1 << 20).clock(clock.clone()).build().unwrap();
        let (limit, mut model) = (allowance(), [0_u64; 400]);
        let brisk = Limit::named("brisk", Policy::per_second(1).build().unwrap()).unwrap();
        for step in steps {
            match step {
                Step::Use(number, cost) => {
                    model[number] += cost;
                    let used = spend(&store, &limit, number as u64, cost);
                    prop_assert_eq!(used, model[number]);
                }
                Step::Reset(number) => {
                    let key = key(number as u64);
                    let target = Target::new(&limit, key.as_str());
                    store.execute(&Operation::Reset { target }).unwrap();
                    model[number] = 0;
                }
                Step::Clean => {
                    clock.advance(Duration::from_secs(1));
                    store.cleanup_stale(Duration::ZERO);
                }
                // Insert other keys that are soon full again.
                Step::Flood(keys) => {
                    for number in 0..keys {
                        let _ = store.take_one(&brisk, Key::new(&key(number)), 1);
                    }
                }
            }
        }
        for (number, used) in model.iter().enumerate() {
            prop_assert_eq!(spend(&store, &limit, number as u64, 0), *used);
        }
        clock.advance(Duration::from_secs(1));
        store.cleanup_stale(Duration::ZERO);
        prop_assert_eq!(store.len(), model.iter().filter(|used| **used > 0).count());
    }
}

/// Threads insert new keys and so make the table grow, while others use existing keys.
#[test]
fn threads_grow_the_table_concurrently() {
    let store = MemoryStore::new();
    let limit = allowance();
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (store, limit) = (&store, &limit);
            scope.spawn(move || {
                for round in 0..20_000_u64 {
                    spend(store, limit, round * 4 + worker, 1);
                    spend(store, limit, round / 100, 1);
                    if round % 5_000 == worker {
                        store.cleanup_stale(Duration::ZERO);
                    }
                }
            });
        }
    });
    let total: u64 = (0..80_000).map(|number| spend(&store, &limit, number, 0)).sum();
    assert_eq!(total, 160_000);
    assert_eq!(store.len(), 80_000);
}
