//! A flood of keys neither grows memory nor evicts keys in debt.

use std::time::Duration;

use tidegate_core::{
    Charge, Correction, Decision, Key, Limit, Operation, Policy, Retry, StoreResponse, Time,
};
use tidegate_memory::clock::ManualClock;
use tidegate_memory::{MemoryStore, Overflow};

/// Enough for about a million keys.
const MEMORY: usize = 43 << 20;
/// Enough for some ten thousand keys, and for the shared buckets of two limits.
const SMALL: usize = 2 << 20;

fn store(memory: usize, overflow: Overflow) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new();
    let builder = MemoryStore::builder().max_memory(memory).overflow(overflow);
    (builder.clock(clock.clone()).build().unwrap(), clock)
}

fn hourly() -> Limit {
    let policy = Policy::per(1, Duration::from_secs(3_600)).capacity(1).build().unwrap();
    Limit::named("hourly", policy).unwrap()
}

fn take(store: &MemoryStore, limit: &Limit, number: u64) -> bool {
    let key = format!("user:{number:019}");
    store.take_one(limit, Key::new(&key), 1).is_allowed()
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

/// The flood runs in its own process, so that resident memory can be measured.
#[test]
#[expect(clippy::disallowed_methods, reason = "selects the child process of this test")]
fn ten_million_one_shot_keys_stay_under_the_memory_cap() {
    const ALONE: &str = "TIDEGATE_TEST_FLOOD_ALONE";
    if std::env::var(ALONE).is_ok() {
        return flood();
    }
    let name = "overflow::ten_million_one_shot_keys_stay_under_the_memory_cap";
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    let output = alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stderr));
    assert!(report.contains("1 passed"), "the child did not run the flood: {report}");
}

fn flood() {
    let before = resident();
    let (store, clock) = store(MEMORY, Overflow::Shared);
    let limit = hourly();
    let debtors = 0..1_000;
    for debtor in debtors.clone() {
        assert!(take(&store, &limit, debtor));
    }
    for number in 1_000..10_000_000 {
        let _ = take(&store, &limit, number);
    }
    for debtor in debtors {
        assert!(!take(&store, &limit, debtor), "key {debtor} lost its debt in the flood");
    }
    let stats = store.stats();
    assert!((950_000..=stats.max_keys).contains(&stats.keys), "{stats:?}");
    assert!(stats.overflowed > 8_900_000, "{stats:?}");
    assert!(stats.memory_bytes <= MEMORY, "{stats:?}");
    let grown = resident().saturating_sub(before);
    assert!(grown <= MEMORY + (8 << 20), "resident memory grew by {grown} bytes");

    clock.advance(Duration::from_secs(3_600));
    assert!(take(&store, &limit, 77), "an hour later the debt is paid");
    store.cleanup_stale(Duration::ZERO);
    let stats = store.stats();
    assert_eq!(stats.keys, 1, "{stats:?}");
    assert!(stats.memory_bytes < 1 << 20, "memory is released: {stats:?}");
}

#[test]
fn full_buckets_make_room_without_loss() {
    let (store, clock) = store(1 << 20, Overflow::Deny);
    let limit = Limit::named("brisk", Policy::per_second(1).capacity(1).build().unwrap()).unwrap();
    let max = store.stats().max_keys as u64;
    for number in 0..max * 20 {
        assert!(take(&store, &limit, number), "key {number}");
        if number % (max / 4) == 0 {
            clock.advance(Duration::from_secs(1));
        }
    }
    let stats = store.stats();
    assert_eq!(stats.overflowed, 0);
    assert_eq!(stats.inserted - stats.evicted, stats.keys as u64);
}

#[test]
fn overflowing_keys_share_buckets_and_keep_their_debt_afterwards() {
    let (store, clock) = store(SMALL, Overflow::Shared);
    let (filler, limit) = (hourly(), Limit::named("late", hourly().policy().to_owned()).unwrap());
    let max = store.stats().max_keys as u64;
    for number in 0..max * 2 {
        let _ = take(&store, &filler, number);
    }
    assert!(take(&store, &limit, 1), "a fresh shared bucket");
    assert!(!take(&store, &limit, 1), "which is now empty");
    let granted = (0..100_000).filter(|&number| take(&store, &limit, number)).count();
    assert!(granted <= 4_096, "{granted} grants from 4,096 shared buckets of one token");

    // Resetting the filler keys makes room. The debt moves into the table with the key.
    clock.set(Time::from_nanos(1_000_000_000));
    for number in 0..max * 2 {
        let key = format!("user:{number:019}");
        let target = tidegate_core::Target::new(&filler, key.as_str());
        store.execute(&Operation::Reset { target }).unwrap();
    }
    assert!(!take(&store, &limit, 1), "the debt outlives the flood");
    clock.advance(Duration::from_secs(3_600));
    assert!(take(&store, &limit, 1));
}

#[test]
fn receipt_refunds_the_shared_bucket_that_was_charged() {
    let (store, _clock) = store(SMALL, Overflow::Shared);
    let (filler, limit) = (hourly(), Limit::named("late", hourly().policy().to_owned()).unwrap());
    for number in 0..store.stats().max_keys as u64 * 2 {
        let _ = take(&store, &filler, number);
    }
    let charges = [Charge::new(&limit, "late", 1)];
    let Ok(StoreResponse::Decision(decision)) = store.execute(&Operation::Take(&charges)) else {
        panic!("no decision");
    };
    let receipt = decision.granted().unwrap().receipt;
    assert!(!store.take_one(&limit, Key::new("late"), 1).is_allowed());
    let corrections = [Correction::new(&limit, "late", -1)];
    let settle = Operation::Settle { corrections: &corrections, receipt: Some(&receipt) };
    store.execute(&settle).unwrap();
    assert!(store.take_one(&limit, Key::new("late"), 1).is_allowed());
}

#[test]
fn keys_of_a_list_on_one_shared_bucket_are_charged_together() {
    let (store, _clock) = store(SMALL, Overflow::Shared);
    let filler = hourly();
    let policy = Policy::per(1, Duration::from_secs(3_600)).capacity(3).build().unwrap();
    let limit = Limit::named("late", policy).unwrap();
    for number in 0..store.stats().max_keys as u64 * 2 {
        let _ = take(&store, &filler, number);
    }
    // Among enough keys, some pair shares a bucket: its list of 2 + 2 must not fit into 3.
    let keys: Vec<String> = (0..400).map(|number| format!("pair:{number}")).collect();
    let mut denied = 0;
    for first in &keys {
        for second in keys.iter().filter(|second| *second != first) {
            let charges =
                [Charge::new(&limit, first.as_str(), 2), Charge::new(&limit, second.as_str(), 2)];
            let Ok(StoreResponse::Decision(decision)) = store.execute(&Operation::Peek(&charges))
            else {
                panic!("no decision");
            };
            denied += usize::from(!decision.is_allowed());
        }
    }
    assert!(denied > 0, "no pair of 400 keys shares one of 4,096 buckets");
}

fn decide(store: &MemoryStore, charges: &[Charge<'_>]) -> Decision {
    match store.execute(&Operation::Take(charges)) {
        Ok(StoreResponse::Decision(decision)) => decision,
        other => panic!("{other:?}"),
    }
}

/// Fills the table with keys that stay in debt for an hour.
fn fill(store: &MemoryStore, limit: &Limit) {
    for number in 0..store.stats().max_keys as u64 * 2 {
        let _ = take(store, limit, number);
    }
}

/// Regression: a set of shared buckets that one charge of a list had read was dropped to make room
/// for another set, and the charge was lost: 100 grants of one a day.
#[test]
fn list_over_two_limits_loses_no_charge_when_shared_buckets_are_scarce() {
    let (store, clock) = store(1 << 20, Overflow::Shared);
    let daily = Policy::per(1, Duration::from_secs(86_400)).capacity(1).build().unwrap();
    let daily = Limit::named("daily", daily).unwrap();
    let brisk = Limit::named("brisk", Policy::per_second(1_000).build().unwrap()).unwrap();
    let filler = Limit::named("filler", Policy::allowance(1).unwrap()).unwrap();
    fill(&store, &filler);
    let mut granted = 0;
    for _ in 0..100 {
        clock.advance(Duration::from_millis(10));
        let charges = [Charge::new(&daily, "x", 1), Charge::new(&brisk, "x", 1)];
        granted += usize::from(decide(&store, &charges).is_allowed());
    }
    assert!(granted <= 1, "{granted} grants of one a day");
}

#[test]
fn list_receipts_on_shared_buckets_can_be_refunded() {
    let (store, _clock) = store(SMALL, Overflow::Shared);
    let policy = Policy::per(1, Duration::from_secs(3_600)).capacity(1_000).build().unwrap();
    let limit = Limit::named("late", policy).unwrap();
    fill(&store, &hourly());
    for round in 0..200 {
        let keys: Vec<String> = (0..16).map(|number| format!("late:{round}:{number}")).collect();
        let charges: Vec<_> = keys.iter().map(|key| Charge::new(&limit, key.as_str(), 1)).collect();
        let receipt = decide(&store, &charges).granted().unwrap().receipt;
        let back: Vec<_> =
            keys.iter().map(|key| Correction::new(&limit, key.as_str(), -1)).collect();
        let settle = Operation::Settle { corrections: &back, receipt: Some(&receipt) };
        store.execute(&settle).unwrap();
    }
    let left = store.take_one(&limit, Key::new("late:0:0"), 0).remaining();
    assert_eq!(left, 1_000, "everything was refunded");
}

/// A receipt of a shared bucket whose set is gone must neither write without room nor change the
/// debt of the key's own bucket.
#[test]
fn old_receipt_of_a_shared_bucket_does_no_harm() {
    let (store, clock) = store(SMALL, Overflow::Shared);
    let policy = Policy::per_second(1).capacity(10).build().unwrap();
    let limit = Limit::named("late", policy).unwrap();
    fill(&store, &hourly());
    let keys: Vec<String> = (0..2_000).map(|number| format!("late:{number}")).collect();
    let charge = |key: &str| decide(&store, &[Charge::new(&limit, key, 1)]).granted();
    let receipts: Vec<_> =
        keys.iter().filter_map(|key| Some((key, charge(key)?.receipt))).collect();
    assert!(!receipts.is_empty() && store.stats().overflowed > 0);
    clock.advance(Duration::from_secs(7_200));
    store.cleanup_stale(Duration::ZERO);
    for (key, receipt) in &receipts {
        assert!(store.take_one(&limit, Key::new(key), 10).is_allowed());
        for delta in [-1, 5] {
            let corrections = [Correction::new(&limit, key.as_str(), delta)];
            let settle = Operation::Settle { corrections: &corrections, receipt: Some(receipt) };
            assert!(store.execute(&settle).is_ok());
        }
        assert!(!store.take_one(&limit, Key::new(key), 1).is_allowed(), "all ten tokens are spent");
    }
    assert!(store.stats().memory_bytes <= SMALL);
}

#[test]
fn zero_cost_is_never_denied_even_without_room() {
    let (store, _clock) = store(1 << 20, Overflow::Deny);
    fill(&store, &Limit::named("filler", Policy::allowance(1).unwrap()).unwrap());
    let limit = hourly();
    for number in 0..100 {
        let key = format!("late:{number}");
        assert!(store.take_one(&limit, Key::new(&key), 0).is_allowed());
        let denied = store.take_one(&limit, Key::new(&key), 1);
        let Some(Retry::After(hint)) = denied.retry() else { continue };
        assert!(hint <= Duration::from_secs(60), "{hint:?}");
    }
}

#[test]
fn one_key_may_hold_many_slots() {
    let (store, _clock) = store(8 << 20, Overflow::Shared);
    let calls = Limit::named("calls", Policy::concurrency(1_000, None).unwrap()).unwrap();
    for number in 0..1_000 {
        assert!(store.take_one(&calls, Key::new("x"), 1).is_allowed(), "slot {number}");
    }
    assert!(!store.take_one(&calls, Key::new("x"), 1).is_allowed());
}

#[test]
fn new_key_is_denied_with_a_hint_when_overflow_denies() {
    let (store, _clock) = store(1 << 20, Overflow::Deny);
    let limit = hourly();
    let max = store.stats().max_keys as u64;
    let granted = (0..max * 2).filter(|&number| take(&store, &limit, number)).count() as u64;
    assert!((max * 9 / 10..=max).contains(&granted), "{granted} of {max}");
    let denied = (max * 2..).map(|number| format!("late:{number}")).find_map(|key| {
        let decision = store.take_one(&limit, Key::new(&key), 1);
        (!decision.is_allowed()).then_some(decision)
    });
    let Some(Retry::After(hint)) = denied.unwrap().retry() else { panic!("no hint") };
    assert!(hint <= Duration::from_secs(3_600) && hint >= Duration::from_millis(1));
}
