//! Cases that the contract does not specify. Generators avoid them, so that stores are not tested
//! for more than the contract promises.
//!
//! - A full bucket is equivalent to no bucket, so a store may forget it. If the clock then steps
//!   back before the instant at which it was full, answers may differ.
//! - A bucket written under an older revision is converted at the next write. Whether an operation
//!   that changes nothing counts as a write is up to the store.

use super::entry::{Entry, State};
use super::exact_policy::{ExactPolicy, ceil};
use super::{Oracle, WorkingBucket};
use crate::scenario::spec::PolicySpec;
use crate::scenario::step::{CorrectionSpec, ORIGIN_NS, Op};

const SECOND: u64 = 1_000_000_000;

impl Oracle {
    /// The earliest time after [`ORIGIN_NS`] to which the clock may step back without reaching a
    /// bucket that a store may have forgotten.
    #[must_use]
    pub fn earliest_now(&self) -> u64 {
        let ids = self.entries.iter();
        let floor = ids.map(|((limit, _), entry)| self.forgotten_at(*limit, entry)).max();
        floor.unwrap_or(0).saturating_sub(ORIGIN_NS)
    }

    /// Whether the contract does not specify the answer to `op` or the state after it.
    #[must_use]
    pub fn is_unspecified(&self, op: &Op) -> bool {
        match op {
            Op::Take { charges } | Op::Reserve { charges, .. } => {
                let (buckets, _) = self.buckets(charges, ORIGIN_NS);
                buckets.iter().any(|bucket| bucket.cost == 0 && self.is_bucket_stale(bucket))
            }
            Op::Peek { .. } | Op::Release { .. } | Op::Reset { .. } | Op::Revise { .. } => false,
            Op::Settle { corrections, receipt } => {
                self.is_settle_unspecified(corrections, *receipt)
            }
            Op::Hold { limit, key, span_ns } => *span_ns == 0 || self.is_stale(*limit, key),
        }
    }

    /// Correcting one bucket twice, by zero, a bucket of slots, or a charge that spent nothing is
    /// unspecified.
    fn is_settle_unspecified(
        &self,
        corrections: &[CorrectionSpec],
        receipt: Option<usize>,
    ) -> bool {
        let unspent = |index: usize| {
            let stamps = receipt.map(|step| &self.receipts[&step].stamps);
            stamps.is_some_and(|stamps| !stamps[index].spent)
        };
        corrections.iter().enumerate().any(|(index, CorrectionSpec(limit, key, delta))| {
            let twice = corrections[..index].iter().any(|c| c.0 == *limit && c.1 == *key);
            let policy = &self.limits[*limit].revisions[self.current[*limit]].policy;
            let slots = matches!(policy, PolicySpec::Concurrency { .. });
            slots
                || twice
                || *delta == 0
                || unspent(index)
                || (*delta < 0 && self.is_stale(*limit, key))
        })
    }

    fn is_bucket_stale(&self, bucket: &WorkingBucket) -> bool {
        self.is_stale(bucket.limit, &bucket.key)
    }

    /// Whether the bucket has a hold that expired under an older revision.
    pub(super) fn has_stale_hold(&self, limit: usize, key: &str, now: u64) -> bool {
        self.entries.get(&(limit, key.to_owned())).is_some_and(|entry| {
            entry.hold_generation != self.current[limit]
                && entry.held_until.is_some_and(|until| until <= now)
        })
    }

    /// Whether the bucket was last written under an older revision.
    pub(super) fn is_stale(&self, limit: usize, key: &str) -> bool {
        self.entries.get(&(limit, key.to_owned())).is_some_and(|entry| {
            entry.generation != self.current[limit] && entry.state != State::Fresh
        })
    }

    /// The latest instant at which a part of the entry became irrelevant; zero if there is none.
    fn forgotten_at(&self, limit: usize, entry: &Entry) -> u64 {
        let policy = &self.limits[limit].revisions[entry.generation].policy;
        let exact = ExactPolicy::of(policy);
        let spent = match &entry.state {
            State::Bucket(stored) => ceil(stored),
            State::Quota { ends, .. } => ends * SECOND,
            State::Fresh | State::Allowance { .. } | State::Slots(_) => 0,
        };
        let held = entry.held_until.map_or(0, |until| match &exact {
            Some(exact) => ceil(&exact.refilled(until)),
            None => until,
        });
        [spent, held].into_iter().filter(|&instant| instant <= entry.seen).max().unwrap_or(0)
    }

    /// Removes a key. Returns whether there was anything to forget, or `None` if stores may differ.
    pub(super) fn reset(&mut self, id: &(usize, String), now: u64) -> Option<bool> {
        let bucket = self.bucket(id.0, &id.1, now);
        let Some(entry) = self.entries.remove(id) else { return Some(false) };
        let held = entry.held_until.is_some_and(|until| until > now);
        let capacity = self.limits[id.0].revisions[self.current[id.0]].policy.capacity();
        let outcome = bucket.outcome(None);
        // Tokens are missing or the key is held; otherwise a store may have forgotten it already.
        (held || outcome.remaining < capacity).then_some(true)
    }
}
