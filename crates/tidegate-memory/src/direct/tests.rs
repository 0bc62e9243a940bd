//! A direct limiter behaves like a store with one key.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{
    Charge, Correction, Decision, Limit, Operation, Policy, PolicyChange, Rate, Receipt,
    Settlement, StoreResponse, Time,
};

use super::DirectLimiter;
use crate::MemoryStore;
use crate::clock::{CachedClock, Clock, ManualClock};

const SECOND: u64 = 1_000_000_000;

fn policy((rate, capacity): (&str, u64)) -> Policy {
    Policy::rate(rate.parse::<Rate>().unwrap()).capacity(capacity).build().unwrap()
}

/// A step applied to both the limiter and the store.
#[derive(Clone, Debug)]
enum Step {
    Advance(u64),
    Take(u64),
    Reserve(u64, u64),
    /// A correction, with the receipt of the nth last reservation if given.
    Settle(i64, Option<usize>),
    Reconfigure((&'static str, u64)),
}

fn policies() -> impl Strategy<Value = (&'static str, u64)> {
    let rates = prop_oneof![Just("7/min"), Just("3/s"), Just("50/s"), Just("999/s"), Just("1.5/s")];
    (rates, 1..20_u64)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop_oneof![1..5_u64, 1..2 * SECOND, 1..100 * SECOND].prop_map(Step::Advance),
        6 => prop_oneof![9 => 0..6_u64, 1 => 0..40_u64].prop_map(Step::Take),
        4 => (0..6_u64, 0..30 * SECOND).prop_map(|(cost, wait)| Step::Reserve(cost, wait)),
        4 => (-6..6_i64, prop::option::of(0..3_usize)).prop_map(|(d, r)| Step::Settle(d, r)),
        1 => policies().prop_map(Step::Reconfigure),
    ];
    prop::collection::vec(step, 1..120)
}

/// A limiter and a store, with the receipts of each.
struct Pair {
    limiter: DirectLimiter,
    store: MemoryStore,
    limit: Limit,
    receipts: Vec<(Receipt, Receipt)>,
}

impl Pair {
    fn new(clock: &(impl Clock + Clone + 'static), first: (&str, u64)) -> Self {
        let store = MemoryStore::builder().max_memory(1 << 20).clock(clock.clone());
        Self {
            limiter: DirectLimiter::with_clock(policy(first), clock.clone()).unwrap(),
            store: store.build().unwrap(),
            limit: Limit::named("direct", policy(first)).unwrap(),
            receipts: Vec::new(),
        }
    }

    fn take(&self, cost: u64) {
        let decision = self.limiter.take(cost);
        let theirs = self.store.spend_one(&self.limit, "key".into(), cost);
        assert_eq!(
            (decision.is_allowed(), decision.outcome()),
            (theirs.is_allowed(), theirs.outcome())
        );
        assert_eq!(decision.retry(), theirs.retry());
    }

    fn reserve(&mut self, cost: u64, wait: Duration) {
        let charges = [Charge::new(&self.limit, "key", cost)];
        let operation = Operation::Reserve { charges: &charges, horizon: wait };
        let Ok(StoreResponse::Decision(theirs)) = self.store.execute(&operation) else {
            unreachable!()
        };
        let ours = self.limiter.reserve(cost, wait);
        assert_eq!(ours.outcomes(), theirs.outcomes());
        match (ours, theirs) {
            (Decision::Allowed(ours), Decision::Allowed(theirs)) => {
                assert_eq!(ours.wait, theirs.wait);
                self.receipts.push((ours.receipt, theirs.receipt));
            }
            (ours, theirs) => assert_eq!(ours, theirs),
        }
    }

    fn settle(&self, delta: i64, before_last: Option<usize>) {
        let pair = before_last.and_then(|back| self.receipts.iter().rev().nth(back));
        let corrections = [Correction::new(&self.limit, "key", delta)];
        let receipt = pair.map(|(_, theirs)| theirs);
        let operation = Operation::Settle { corrections: &corrections, receipt };
        let Ok(StoreResponse::Settled(theirs)) = self.store.execute(&operation) else {
            unreachable!()
        };
        let ours: Settlement = self.limiter.settle(delta, pair.map(|(ours, _)| ours)).unwrap();
        assert_eq!(ours, theirs);
    }

    fn reconfigure(&mut self, next: (&str, u64)) {
        self.limiter.reconfigure(policy(next)).unwrap();
        self.limit = self.limit.revise(policy(next), PolicyChange::KeepTokens).unwrap();
        assert_eq!(self.limiter.policy(), policy(next));
        // A store converts a bucket on the next attempt to spend from it.
        self.take(1);
    }
}

fn both_agree(
    clock: &(impl Clock + Clone + 'static),
    set: impl Fn(Time),
    first: (&str, u64),
    steps: Vec<Step>,
) {
    let mut pair = Pair::new(clock, first);
    for step in steps {
        match step {
            Step::Advance(nanos) => set(clock.now().after(Duration::from_nanos(nanos))),
            Step::Take(cost) => pair.take(cost),
            Step::Reserve(cost, wait) => pair.reserve(cost, Duration::from_nanos(wait)),
            Step::Settle(delta, receipt) => pair.settle(delta, receipt),
            Step::Reconfigure(next) => pair.reconfigure(next),
        }
    }
}

proptest! {
    #[test]
    fn atomic_limiter_matches_the_store(first in policies(), steps in steps()) {
        let clock = CachedClock::new();
        both_agree(&clock, |time| clock.set(time), first, steps);
    }

    #[test]
    fn locked_limiter_matches_the_store(first in policies(), steps in steps()) {
        let clock = ManualClock::new();
        both_agree(&clock, |time| clock.set(time), first, steps);
    }
}

#[test]
fn debt_that_overflows_the_word_moves_to_the_locked_bucket() {
    let clock = CachedClock::new();
    // It takes nine years to fill. The same again in debt, after 30 years, overflows the word.
    let mut pair = Pair::new(&clock, ("13/3day", 14_000));
    assert!(pair.limiter.atomic.as_ref().unwrap().load().is_some());
    clock.set(Time::from_nanos(30 * 31_557_600 * SECOND));
    pair.take(14_000);
    pair.settle(13_999, None);
    assert!(pair.limiter.atomic.as_ref().unwrap().load().is_none(), "the atomic bucket is closed");
    pair.take(1);
    pair.reserve(1, Duration::ZERO);
    clock.set(Time::from_nanos(48 * 31_557_600 * SECOND));
    pair.take(1);
}

#[test]
fn receipt_of_another_limiter_is_rejected() {
    let limiters = [("1/s", 2), ("1/s", 2)].map(|it| DirectLimiter::new(policy(it)).unwrap());
    let grant = limiters[0].reserve(1, Duration::ZERO).granted().unwrap();
    assert!(limiters[1].settle(-1, Some(&grant.receipt)).is_err());
    assert_eq!(limiters[0].settle(-1, Some(&grant.receipt)).unwrap().applied[..], [-1]);
}
