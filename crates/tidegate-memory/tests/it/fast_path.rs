//! The fast path decides, writes and counts like the general path.
//!
//! Two stores execute the same steps. One gets them as callers would send them. The other gets
//! lists of three, padded with charges of zero, which are not eligible for the fast path.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{
    Charge, Correction, Decision, Key, Limit, Operation, Outcomes, Policy, PolicyChange, Receipt,
    Settlement, StoreResponse, Target, Time,
};
use tidegate_memory::MemoryStore;
use tidegate_memory::clock::ManualClock;

/// A step applied to both stores.
#[derive(Clone, Debug)]
enum Step {
    /// Charges, without a receipt if possible.
    Spend(Vec<(usize, u64)>),
    /// Charges with a receipt.
    Take(Vec<(usize, u64)>),
    /// A take by a caller that still has the previous policy.
    TakeWithOldPolicy(usize, u64),
    /// A correction with the last receipt.
    Settle(i64),
    Hold(usize, u64),
    Reset(usize),
    Revise(usize),
    Advance(u64),
    Rewind(u64),
    Clean,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..NAMES.len();
    let cost = || prop_oneof![8 => 1..12_u64, 1 => Just(u64::MAX), 1 => Just(0)];
    let list = move || prop::collection::vec((key(), cost()), 1..=2);
    let span =
        || prop_oneof![Just(0), 1..5_u64, 1..5_000_000_000_u64, Just(333_333_333), Just(1 << 40)];
    let step = prop_oneof![
        6 => list().prop_map(Step::Spend),
        6 => list().prop_map(Step::Take),
        1 => (key(), cost()).prop_map(|(key, cost)| Step::TakeWithOldPolicy(key, cost)),
        2 => (-12..12_i64).prop_map(Step::Settle),
        1 => (key(), 1..3_000_000_000_u64).prop_map(|(key, span)| Step::Hold(key, span)),
        1 => key().prop_map(Step::Reset),
        1 => (0..4_usize).prop_map(Step::Revise),
        5 => span().prop_map(Step::Advance),
        2 => span().prop_map(Step::Rewind),
        1 => Just(Step::Clean),
    ];
    prop::collection::vec(step, 1..60)
}

fn policy(number: usize) -> Policy {
    let builder = match number {
        0 => Policy::per_second(3).capacity(10),
        1 => Policy::per(7, Duration::from_secs(11)).capacity(4),
        2 => Policy::per_second(1).capacity(10),
        _ => Policy::per_second(4_000_000_000).capacity(11),
    };
    builder.build().unwrap()
}

/// Two stores with the same clock and limit.
struct StorePair {
    clock: ManualClock,
    fast: MemoryStore,
    general: MemoryStore,
    limit: Limit,
    previous: Limit,
    /// The last receipts, and their keys.
    receipts: Option<([Receipt; 2], Vec<usize>)>,
}

impl StorePair {
    fn new() -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(100));
        let store = || MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let limit = Limit::named("x", policy(0)).unwrap();
        let (fast, general, previous) = (store(), store(), limit.clone());
        Self { clock, fast, general, limit, previous, receipts: None }
    }

    fn apply(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Spend(list) => self.spend(&list)?,
            Step::Take(list) => self.take(&self.limit.clone(), &list)?,
            Step::TakeWithOldPolicy(key, cost) => {
                self.take(&self.previous.clone(), &[(key, cost)])?;
            }
            Step::Settle(delta) => self.settle(delta)?,
            Step::Hold(key, span) => {
                let span = Duration::from_nanos(span);
                self.both(&Operation::Hold { target: target(&self.limit, key), span })?;
            }
            Step::Reset(key) => {
                self.both(&Operation::Reset { target: target(&self.limit, key) })?;
            }
            Step::Revise(number) => {
                let revised = self.limit.revise(policy(number), PolicyChange::KeepTokens).unwrap();
                self.previous = std::mem::replace(&mut self.limit, revised);
            }
            Step::Advance(span) => self.clock.advance(Duration::from_nanos(span)),
            Step::Rewind(span) => {
                let now = self.fast.now().as_nanos();
                self.clock.set(Time::from_nanos(now.saturating_sub(span).max(1)));
            }
            Step::Clean => {
                let cleaned = self.fast.cleanup_stale(Duration::ZERO);
                prop_assert_eq!(cleaned, self.general.cleanup_stale(Duration::ZERO));
            }
        }
        let [fast, general] = [&self.fast, &self.general].map(|store| {
            let stats = store.stats();
            (stats.keys, stats.held_keys, stats.inserted, stats.evicted, stats.saturated)
        });
        prop_assert_eq!(fast, general);
        Ok(())
    }

    fn both(&self, operation: &Operation<'_>) -> Result<(), TestCaseError> {
        let answers = [&self.fast, &self.general].map(|store| store.execute(operation).unwrap());
        prop_assert_eq!(&answers[0], &answers[1]);
        Ok(())
    }

    fn spend(&mut self, list: &[(usize, u64)]) -> Result<(), TestCaseError> {
        let limit = self.limit.clone();
        let mut outcomes = Outcomes::new();
        if !self.fast.spend_list(&charges(&limit, list), &mut outcomes) {
            prop_assert!(outcomes.is_empty());
            return self.take(&limit, list);
        }
        let general = take(&self.general, &padded(&limit, list));
        let denied = outcomes.iter().any(|outcome| outcome.retry.is_some());
        prop_assert_eq!(denied, !general.is_allowed());
        prop_assert_eq!(&outcomes[..], &general.outcomes()[..list.len()]);
        Ok(())
    }

    fn take(&mut self, limit: &Limit, list: &[(usize, u64)]) -> Result<(), TestCaseError> {
        let fast = take(&self.fast, &charges(limit, list));
        let general = take(&self.general, &padded(limit, list));
        prop_assert_eq!(fast.outcomes(), &general.outcomes()[..list.len()]);
        prop_assert_eq!(fast.retry(), general.retry());
        prop_assert_eq!(fast.is_allowed(), general.is_allowed());
        if let (Some(fast), Some(general)) = (fast.granted(), general.granted()) {
            prop_assert_eq!(fast.wait, general.wait);
            prop_assert_eq!(fast.receipt.start(), general.receipt.start());
            for (one, other) in fast.receipt.charges().iter().zip(general.receipt.charges()) {
                prop_assert_eq!((one.location, one.generation), (other.location, other.generation));
                prop_assert_eq!(one.state, other.state);
            }
            let keys = list.iter().map(|(key, _)| *key).collect();
            self.receipts = Some(([fast.receipt, general.receipt], keys));
        }
        Ok(())
    }

    fn settle(&self, delta: i64) -> Result<(), TestCaseError> {
        let Some(([fast, general], keys)) = &self.receipts else { return Ok(()) };
        let correction = |key: &usize| Correction { target: target(&self.limit, *key), delta };
        let mut corrections: Vec<_> = keys.iter().map(correction).collect();
        let one = settle(&self.fast, &corrections, fast);
        corrections.resize(3, Correction { delta: 0, ..correction(&keys[0]) });
        let other = settle(&self.general, &corrections, general);
        prop_assert_eq!(&one.outcomes[..], &other.outcomes[..keys.len()]);
        prop_assert_eq!(&one.applied[..], &other.applied[..keys.len()]);
        Ok(())
    }
}

fn target(limit: &Limit, key: usize) -> Target<'_> {
    Target { limit, key: Key::new(NAMES[key]), windows: None }
}

fn charges<'l>(limit: &'l Limit, list: &[(usize, u64)]) -> Vec<Charge<'l>> {
    list.iter().map(|&(key, cost)| Charge { target: target(limit, key), cost }).collect()
}

/// Pads the charges to a list of three.
fn padded<'l>(limit: &'l Limit, list: &[(usize, u64)]) -> Vec<Charge<'l>> {
    let mut charges = charges(limit, list);
    charges.resize(3, Charge { target: charges[0].target, cost: 0 });
    charges
}

fn take(store: &MemoryStore, charges: &[Charge<'_>]) -> Decision {
    match store.execute(&Operation::Take(charges)).unwrap() {
        StoreResponse::Decision(decision) => decision,
        other => panic!("{other:?}"),
    }
}

fn settle(store: &MemoryStore, corrections: &[Correction<'_>], receipt: &Receipt) -> Settlement {
    match store.execute(&Operation::Settle { corrections, receipt: Some(receipt) }).unwrap() {
        StoreResponse::Settled(settlement) => settlement,
        other => panic!("{other:?}"),
    }
}

proptest! {


    #[test]
    fn fast_path_matches_general_path(steps in steps()) {
        let mut pair = StorePair::new();
        for step in steps {
            pair.apply(step)?;
        }
    }
}
