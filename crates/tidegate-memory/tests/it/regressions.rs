//! Isolation of failures between calls, bounds, and regressions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_core::{
    Charge, Key, Limit, Operation, Policy, PolicyChange, StoreError, StoreResponse, Target, Time,
    WallTime,
};
use tidegate_memory::MemoryStore;
use tidegate_memory::clock::{Clock, ManualClock, SystemClock};

/// A clock that can be made to panic.
#[derive(Clone, Debug, Default)]
struct FlakyClock(Arc<AtomicBool>);

impl Clock for FlakyClock {
    fn now(&self) -> Time {
        assert!(!self.0.load(Ordering::SeqCst), "simulated clock failure");
        Time::from_nanos(1)
    }

    fn wall(&self) -> WallTime {
        WallTime::default()
    }
}

fn limit(policy: Policy) -> Limit {
    Limit::named("a", policy).unwrap()
}

#[test]
fn panic_in_one_call_does_not_affect_later_calls() {
    let clock = FlakyClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let limit = limit(Policy::per_second(1).capacity(2).build().unwrap());
    clock.0.store(true, Ordering::SeqCst);
    let call = catch_unwind(AssertUnwindSafe(|| store.take_one(&limit, Key::new("x"), 1)));
    assert!(call.is_err());
    clock.0.store(false, Ordering::SeqCst);
    assert_eq!(store.take_one(&limit, Key::new("x"), 1).remaining(), 1);
}

#[test]
fn the_number_of_holds_and_leases_is_bounded() {
    let store =
        MemoryStore::builder().max_memory(1 << 20).clock(ManualClock::new()).build().unwrap();
    let limit = limit(Policy::per_second(1).build().unwrap());
    let hold = |number: u64| {
        let key = number.to_string();
        let target = Target::new(&limit, key.as_str());
        store.execute(&Operation::Hold { target, span: Duration::from_secs(60) })
    };
    let refused = (0..100_000).map(hold).find(Result::is_err);
    assert!(matches!(refused, Some(Err(StoreError::Full))));

    let slots = Limit::named("slots", Policy::concurrency(u64::MAX, None).unwrap()).unwrap();
    let charges = [Charge::new(&slots, "x", 1)];
    let refused =
        (0..100_000).map(|_| store.execute(&Operation::Take(&charges))).find(Result::is_err);
    assert!(matches!(refused, Some(Err(StoreError::Full))));
    assert!(store.stats().memory_bytes <= 1 << 20, "{:?}", store.stats());
}

/// Regression: a reading made before the lock could be older than what another thread had written.
/// With neither debt nor horizon, the difference was mistaken for a clock that stepped back.
#[test]
fn threads_on_the_real_clock_never_exceed_the_rate() {
    let store = MemoryStore::new();
    let policy = Policy::per_second(20_000).capacity(20).max_debt(0).max_horizon(Duration::ZERO);
    let limit = limit(policy.build().unwrap());
    let begin = store.now();
    let granted: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let takes = (0..100_000).map(|_| store.take_one(&limit, Key::new("x"), 1));
                    takes.filter(tidegate_core::Decision::is_allowed).count() as u64
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let elapsed = u64::try_from(store.now().since(begin).as_nanos()).unwrap();
    let most = 20 + elapsed / 50_000 + 1;
    assert!(granted <= most, "{granted} grants, at most {most} were due");
}

#[test]
fn cleanup_keeps_keys_in_debt() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let limit = limit(Policy::per_second(1).capacity(10).build().unwrap());
    let _ = store.take_one(&limit, Key::new("idle"), 1);
    let _ = store.take_one(&limit, Key::new("owes"), 10);
    clock.advance(Duration::from_secs(5));
    assert_eq!(store.cleanup_stale(Duration::from_secs(60)), 0, "full for only four seconds");
    assert_eq!(store.cleanup_stale(Duration::from_secs(4)), 1);
    assert_eq!(store.take_one(&limit, Key::new("owes"), 0).remaining(), 5);
    store.clear();
    assert!(store.is_empty());
    assert_eq!(store.take_one(&limit, Key::new("owes"), 0).remaining(), 10);
    let Ok(StoreResponse::Reset(false)) =
        store.execute(&Operation::Reset { target: Target::new(&limit, "owes") })
    else {
        panic!("nothing was there to forget");
    };
}

/// Regression: after a limit had become a concurrency limit, a reset left the earlier bucket in the
/// table.
#[test]
fn reset_forgets_the_bucket_of_an_earlier_policy_kind() {
    let store = MemoryStore::new();
    let old = limit(Policy::allowance(3).unwrap());
    assert!(store.take_one(&old, Key::new("x"), 3).is_allowed());
    let new = old.revise(Policy::concurrency(3, None).unwrap(), PolicyChange::KeepTokens).unwrap();
    let reset = store.execute(&Operation::Reset { target: Target::new(&new, "x") });
    assert!(matches!(reset, Ok(StoreResponse::Reset(true))), "{reset:?}");
    assert_eq!(store.len(), 0);
    assert!(store.take_one(&old, Key::new("x"), 3).is_allowed());
}

/// Regression: on monotonic clocks, a key stayed closed for as long as a slow policy of the same
/// name had left it.
#[test]
fn two_policies_of_one_name_decide_the_same_on_every_clock() {
    let slow = limit(Policy::per_minute(1).capacity(1_000).build().unwrap());
    let fast = limit(Policy::per_second(1_000).capacity(1).build().unwrap());
    let manual = MemoryStore::builder().clock(ManualClock::new()).build().unwrap();
    let steady = MemoryStore::builder().clock(SystemClock::new()).build().unwrap();
    for store in [manual, steady] {
        for lists in [1, 2] {
            let keys: Vec<String> = (0..lists).map(|number| format!("{lists}-{number}")).collect();
            for key in &keys {
                assert!(store.take_one(&slow, Key::new(key), 1_000).is_allowed());
            }
            let charges: Vec<_> =
                keys.iter().map(|key| Charge::new(&fast, key.as_str(), 1)).collect();
            let Ok(StoreResponse::Decision(denied)) = store.execute(&Operation::Take(&charges))
            else {
                panic!("no decision");
            };
            let reset = denied.outcomes()[0].reset.unwrap();
            assert!(reset < Duration::from_secs(7_200), "{reset:?} by {store:?}");
        }
    }
}

/// Regression: the maximum applies to all holds together, but only lapsed holds of some keys made
/// room.
#[test]
fn lapsed_holds_do_not_count_against_the_maximum() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().max_memory(1 << 20).clock(clock.clone()).build().unwrap();
    let limit = limit(Policy::per_second(1).capacity(1).build().unwrap());
    let hold = |number: usize, secs: u64| {
        let key = number.to_string();
        let target = Target::new(&limit, key.as_str());
        store.execute(&Operation::Hold { target, span: Duration::from_secs(secs) }).is_ok()
    };
    let most = (0..).take_while(|number| hold(*number, 1)).count();
    assert!(most > 100);
    clock.advance(Duration::from_secs(10));
    let refused = (most..most * 2).filter(|number| !hold(*number, 1_000)).count();
    assert_eq!(refused, 0, "of {most}");
}

/// A hold without effect is forgotten when its key is next used.
#[test]
fn lapsed_hold_is_forgotten_on_the_next_decision() {
    let store = MemoryStore::builder().clock(SystemClock::new()).build().unwrap();
    let limit = limit(Policy::per_second(1_000_000_000).capacity(1).build().unwrap());
    let target = Target::new(&limit, "x");
    store.execute(&Operation::Hold { target, span: Duration::from_nanos(1) }).unwrap();
    assert_eq!(store.stats().held_keys, 1);
    let begin = store.now();
    while store.now() <= begin.after(Duration::from_nanos(2)) {}
    assert_eq!(store.take_one(&limit, Key::new("x"), 0).remaining(), 1);
    assert_eq!(store.stats().held_keys, 0);
}
