//! Random schedules of several threads on the whole table, with shuttle: growth, eviction, lists,
//! refunds and overflow under contention.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use tidegate_core::{Charge, Correction, Key, Limit, Operation, Policy, StoreResponse};

use crate::MemoryStore;
use crate::clock::ManualClock;

const SCHEDULES: usize = 2_000;
const THREADS: usize = 3;

fn limit(name: &str, capacity: u64) -> Limit {
    Limit::named(name, Policy::per_second(1).capacity(capacity).build().unwrap()).unwrap()
}

fn allowed(store: &MemoryStore, charges: &[Charge<'_>]) -> bool {
    match store.execute(&Operation::Take(charges)).unwrap() {
        StoreResponse::Decision(decision) => decision.is_allowed(),
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn lists_are_spent_completely_or_not_at_all() {
    shuttle::check_random(
        || {
            let (client, organization) = (limit("client", 3), limit("organization", 5));
            let store =
                Arc::new(MemoryStore::builder().clock(ManualClock::new()).seed(7).build().unwrap());
            let workers: Vec<_> = (0..THREADS)
                .map(|worker| {
                    let (store, client, organization) =
                        (store.clone(), client.clone(), organization.clone());
                    thread::spawn(move || {
                        let key = format!("client-{worker}");
                        let charges = [
                            Charge::new(&organization, "acme", 1),
                            Charge::new(&client, key.as_str(), 1),
                        ];
                        (0..4).filter(|_| allowed(&store, &charges)).count()
                    })
                })
                .collect();
            let total: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
            assert_eq!(total, 5, "exactly the organization's tokens");
            let spent_by_clients: u64 = (0..THREADS)
                .map(|worker| {
                    let key = format!("client-{worker}");
                    3 - store.take_one(&client, Key::new(&key), 0).remaining()
                })
                .sum();
            assert_eq!(spent_by_clients, 5, "a denied list spends nothing anywhere");
        },
        SCHEDULES,
    );
}

/// Threads insert keys that are full again after a millisecond, and clean up the table, while
/// another key stays in debt.
#[test]
fn growth_and_eviction_lose_no_debt() {
    shuttle::check_random(
        || {
            let clock = ManualClock::new();
            let builder = MemoryStore::builder().max_memory(1 << 20).clock(clock.clone());
            let store = Arc::new(builder.seed(7).build().unwrap());
            let debtor = limit("debtor", 1);
            let brisk = Policy::per_second(1_000).capacity(1).build().unwrap();
            let brisk = Limit::named("brisk", brisk).unwrap();
            assert!(store.take_one(&debtor, Key::new("x"), 1).is_allowed());
            let workers: Vec<_> = (0..THREADS)
                .map(|worker| {
                    let (store, brisk, clock) = (store.clone(), brisk.clone(), clock.clone());
                    thread::spawn(move || {
                        for number in 0..20 {
                            let key = format!("{worker}-{number}");
                            assert!(store.take_one(&brisk, Key::new(&key), 1).is_allowed());
                            if thread_rng().gen_bool(0.1) {
                                clock.advance(Duration::from_millis(1));
                                store.cleanup_stale(Duration::ZERO);
                            }
                        }
                    })
                })
                .collect();
            for worker in workers {
                worker.join().unwrap();
            }
            clock.advance(Duration::from_millis(1));
            store.cleanup_stale(Duration::ZERO);
            let stats = store.stats();
            assert_eq!(
                (stats.keys, stats.evicted),
                (1, 60),
                "all keys but the one in debt are evicted"
            );
            assert!(!store.take_one(&debtor, Key::new("x"), 1).is_allowed());
        },
        SCHEDULES / 10,
    );
}

/// In a full store, keys of different segments share buckets, each under the lock of its own line.
#[test]
fn no_update_of_a_shared_bucket_is_lost() {
    shuttle::check_random(
        || {
            let builder = MemoryStore::builder().max_memory(1 << 20).clock(ManualClock::new());
            let store = Arc::new(builder.seed(7).build().unwrap());
            store.force_full();
            let late = limit("late", 3);
            // Different keys that share a bucket.
            let workers: Vec<_> = (0..THREADS)
                .map(|worker| {
                    let (store, late) = (store.clone(), late.clone());
                    thread::spawn(move || {
                        let key = store.key_on_shared_bucket(&late, 9, worker);
                        (0..2)
                            .filter(|_| store.take_one(&late, Key::new(&key), 1).is_allowed())
                            .count()
                    })
                })
                .collect();
            let granted: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
            assert_eq!(granted, 3, "six takes from a shared bucket of three");
        },
        SCHEDULES / 20,
    );
}

impl MemoryStore {
    /// Makes the table behave as if it were full of keys in debt.
    fn force_full(&self) {
        self.table.force_full();
    }

    /// Returns the `nth` key that shares this bucket of a limit.
    fn key_on_shared_bucket(&self, limit: &Limit, bucket: usize, nth: usize) -> String {
        let shares = |key: &String| {
            crate::table::overflow::shared_bucket_index(self.hasher.bucket(limit, Key::new(key)))
                == bucket
        };
        (0_u32..).map(|number| number.to_string()).filter(shares).nth(nth).unwrap()
    }
}

#[test]
fn refunds_and_takes_conserve_tokens() {
    shuttle::check_random(
        || {
            let calls = limit("calls", 4);
            let store =
                Arc::new(MemoryStore::builder().clock(ManualClock::new()).seed(7).build().unwrap());
            let workers: Vec<_> = (0..THREADS)
                .map(|_| {
                    let (store, calls) = (store.clone(), calls.clone());
                    thread::spawn(move || {
                        let mut kept = 0;
                        for round in 0..3 {
                            if allowed(&store, &[Charge::new(&calls, "k", 2)]) {
                                let delta = if round == 1 { -2 } else { -1 };
                                let correction = [Correction::new(&calls, "k", delta)];
                                let settle =
                                    Operation::Settle { corrections: &correction, receipt: None };
                                store.execute(&settle).unwrap();
                                kept += 2 + delta;
                            }
                        }
                        kept
                    })
                })
                .collect();
            let kept: i64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
            let left = store.take_one(&calls, Key::new("k"), 0).remaining();
            assert_eq!(i64::try_from(left).unwrap(), 4 - kept);
        },
        SCHEDULES,
    );
}
