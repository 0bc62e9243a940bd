//! The reference implementation: the full semantics of the `Store` contract over rational numbers.
//!
//! It follows the design, not the core, and shares no arithmetic with it, so that where both agree
//! they are right unless the same mistake was made twice. It is slow and single-threaded, has no
//! leases that expire, and never rejects a list: callers pass valid ones.
//!
//! ```
//! use std::time::Duration;
//! use tidegate_testkit::oracle::Oracle;
//! use tidegate_testkit::scenario::spec::{LimitSpec, PolicySpec};
//! use tidegate_testkit::scenario::step::{ChargeSpec, Expected, Op};
//! let policy = PolicySpec::bucket(1, Duration::from_secs(1), 10);
//! let mut oracle = Oracle::new(vec![LimitSpec::named("client", policy)]);
//! let take = Op::Take { charges: vec![ChargeSpec(0, "alice".into(), 3)] };
//! let Expected::Allowed { charges, .. } = oracle.apply(0, &take) else { panic!("denied") };
//! assert_eq!(charges[0].remaining, 7);
//! ```

mod entry;
mod exact_policy;
mod unspecified;
mod working_bucket;

use std::collections::BTreeMap;

use self::entry::{Entry, State};
use self::working_bucket::{BucketInputs, Stamp, WorkingBucket};
use crate::scenario::spec::LimitSpec;
use crate::scenario::step::{
    ChargeSpec, CorrectionSpec, Expected, ExpectedOutcome, ORIGIN_NS, Op, Wait,
};

/// The record of a grant, for later settlement.
#[derive(Clone, Debug)]
struct Receipt {
    /// The instant at which the charge takes effect.
    start: u64,
    /// One per charge.
    stamps: Vec<Stamp>,
}

/// A store over rational numbers, driven step by step.
#[derive(Clone, Debug)]
pub struct Oracle {
    limits: Vec<LimitSpec>,
    /// The revision of each limit that callers use.
    current: Vec<usize>,
    entries: BTreeMap<(usize, String), Entry>,
    receipts: BTreeMap<usize, Receipt>,
    steps: usize,
}

impl Oracle {
    /// Creates an oracle in which nothing has been spent.
    #[must_use]
    pub fn new(limits: Vec<LimitSpec>) -> Self {
        let current = vec![0; limits.len()];
        Self { limits, current, entries: BTreeMap::new(), receipts: BTreeMap::new(), steps: 0 }
    }

    /// The limits passed to [`Oracle::new`].
    #[must_use]
    pub fn limits(&self) -> &[LimitSpec] {
        &self.limits
    }

    /// The revision of a limit that callers use now.
    #[must_use]
    pub fn revision(&self, limit: usize) -> usize {
        self.current[limit]
    }

    /// Applies the next step, at `at_ns` after [`ORIGIN_NS`], and returns the answer.
    pub fn apply(&mut self, at_ns: u64, op: &Op) -> Expected {
        let now = ORIGIN_NS + at_ns;
        let step = self.steps;
        self.steps += 1;
        for entry in self.entries.values_mut() {
            entry.seen = entry.seen.max(now);
        }
        match op {
            Op::Take { charges } => self.decide(charges, Some(0), step, now),
            Op::Reserve { charges, horizon_ns } => {
                self.decide(charges, Some(*horizon_ns), step, now)
            }
            Op::Peek { charges } => self.decide(charges, None, step, now),
            Op::Settle { corrections, receipt } => self.settle(corrections, *receipt, now),
            Op::Release { receipt } => self.release(*receipt, now),
            Op::Hold { limit, key, span_ns } => self.hold((*limit, key.clone()), *span_ns, now),
            Op::Reset { limit, key } => Expected::Reset(self.reset(&(*limit, key.clone()), now)),
            Op::Revise { limit } => {
                self.current[*limit] += 1;
                Expected::Nothing
            }
        }
    }

    fn bucket(&self, limit: usize, key: &str, now: u64) -> WorkingBucket {
        let generation = self.current[limit];
        let spec = &self.limits[limit];
        let entry = self.entries.get(&(limit, key.to_owned()));
        let (state, held_until) =
            entry.map_or((State::Fresh, None), |entry| entry.under_revision(spec, generation, now));
        WorkingBucket::open(BucketInputs {
            limit,
            key,
            generation,
            policy: &spec.revisions[generation].policy,
            window_s: spec.window_s,
            state,
            held_until,
            now,
        })
    }

    /// Returns each bucket of a list once, and for each charge the index of its bucket.
    fn buckets(&self, charges: &[ChargeSpec], now: u64) -> (Vec<WorkingBucket>, Vec<usize>) {
        let mut buckets: Vec<WorkingBucket> = Vec::new();
        let mut order = Vec::new();
        for ChargeSpec(limit, key, cost) in charges {
            let known = buckets.iter().position(|a| a.limit == *limit && a.key == *key);
            let index = known.unwrap_or_else(|| {
                buckets.push(self.bucket(*limit, key, now));
                buckets.len() - 1
            });
            buckets[index].cost += u128::from(*cost);
            order.push(index);
        }
        (buckets, order)
    }

    /// Decides a list of charges. Without a horizon nothing is spent.
    fn decide(
        &mut self,
        charges: &[ChargeSpec],
        horizon: Option<u64>,
        step: usize,
        now: u64,
    ) -> Expected {
        let (mut buckets, order) = self.buckets(charges, now);
        let max_wait = buckets.iter().map(WorkingBucket::max_wait).min().unwrap_or(u64::MAX);
        let max_wait = max_wait.min(horizon.unwrap_or(0));
        let starts: Result<Vec<u64>, Wait> = buckets.iter().map(WorkingBucket::fit).collect();
        let start = starts.ok().and_then(|starts| starts.into_iter().max());
        let Some(start) = start.filter(|start| start - now <= max_wait) else {
            let outcomes = order.iter().map(|&i| buckets[i].outcome(buckets[i].retry())).collect();
            if horizon.is_some() {
                self.repair(buckets, now);
            }
            return denied(outcomes);
        };
        for bucket in &mut buckets {
            bucket.spend(start, step);
        }
        let outcomes: Vec<ExpectedOutcome> =
            order.iter().map(|&index| buckets[index].outcome(None)).collect();
        if horizon.is_some() {
            let stamps = order.iter().map(|&index| stamp(&buckets[index])).collect();
            self.receipts.insert(step, Receipt { start, stamps });
            for bucket in buckets.into_iter().filter(|bucket| bucket.cost > 0) {
                self.write(bucket, now);
            }
        }
        let least = outcomes.iter().map(|outcome| outcome.remaining).min();
        let by = outcomes.iter().position(|outcome| Some(outcome.remaining) == least).unwrap_or(0);
        Expected::Allowed { by, wait_ns: start - now, charges: outcomes }
    }

    /// Writes back the buckets of a denied list if necessary. A denial spends nothing, but it
    /// repairs instants left by a clock that stepped back, and moves a bucket to the current
    /// policy.
    fn repair(&mut self, buckets: Vec<WorkingBucket>, now: u64) {
        for mut bucket in buckets.into_iter().filter(|bucket| bucket.cost > 0) {
            let stale = self.is_stale(bucket.limit, &bucket.key)
                || self.has_stale_hold(bucket.limit, &bucket.key, now);
            if bucket.repair(now) || stale {
                self.write(bucket, now);
            }
        }
    }

    fn settle(
        &mut self,
        corrections: &[CorrectionSpec],
        receipt: Option<usize>,
        now: u64,
    ) -> Expected {
        let receipt = receipt.map(|step| self.receipts[&step].clone());
        let (mut saturated, mut dropped, mut charges) = (0, 0, Vec::new());
        for (index, CorrectionSpec(limit, key, delta)) in corrections.iter().enumerate() {
            let mut bucket = self.bucket(*limit, key, now);
            let spend = receipt.as_ref().map(|receipt| (&receipt.stamps[index], receipt.start));
            let settled = bucket.settle(*delta, spend);
            saturated += usize::from(settled.saturated);
            dropped += usize::from(settled.dropped);
            charges.push(bucket.outcome(None));
            self.write(bucket, now);
        }
        Expected::Settled { saturated, dropped, charges }
    }

    fn release(&mut self, receipt: usize, now: u64) -> Expected {
        let mut released = 0;
        for Stamp { limit, key, .. } in self.receipts[&receipt].stamps.clone() {
            let Some(entry) = self.entries.get_mut(&(limit, key)) else { continue };
            if let State::Slots(slots) = &mut entry.state {
                released += slots.remove(&receipt).unwrap_or(0);
                entry.seen = now;
            }
        }
        Expected::Slots(released)
    }

    fn hold(&mut self, id: (usize, String), span_ns: u64, now: u64) -> Expected {
        let generation = self.current[id.0];
        let entry = self.entries.entry(id).or_insert(Entry { generation, ..Entry::default() });
        let until = entry.held_until.unwrap_or(0).max(now + span_ns);
        entry.held_until = Some(until);
        entry.hold_generation = generation;
        entry.seen = now;
        Expected::Held(until - now)
    }

    fn write(&mut self, bucket: WorkingBucket, now: u64) {
        let entry = self.entries.entry((bucket.limit, bucket.key)).or_default();
        entry.generation = bucket.generation;
        entry.held_until = bucket.held_until;
        // An unused window is forgotten, even if the clock has stepped back before its start.
        let unused = matches!(bucket.state, State::Quota { used: 0, .. });
        entry.state = if unused { State::Fresh } else { bucket.state };
        entry.seen = now;
    }
}

fn stamp(bucket: &WorkingBucket) -> Stamp {
    Stamp {
        limit: bucket.limit,
        key: bucket.key.clone(),
        generation: bucket.generation,
        spent: bucket.cost > 0,
        state: bucket.state.clone(),
    }
}

/// Builds a denial. The first charge with the longest wait is the binding one.
fn denied(charges: Vec<ExpectedOutcome>) -> Expected {
    let longest = charges.iter().filter_map(|outcome| outcome.retry_ns).max();
    let by = charges.iter().position(|outcome| outcome.retry_ns == longest).unwrap_or(0);
    Expected::Denied { by, retry_ns: longest.unwrap_or(Wait::Never), charges }
}
