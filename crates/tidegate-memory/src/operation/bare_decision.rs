//! A decision without a receipt, whose details are computed on demand.
//!
//! The remaining tokens and the reset time take a division or two. Callers that only check whether
//! the charge is allowed do not pay for them.

use tidegate_core::{ExactTime, Outcome, Retry, Time, TokenBucket};

/// Decision on one charge, without a receipt.
///
/// ```
/// use tidegate::{MemoryStore, Policy};
/// use tidegate_core::Limit;
/// let store = MemoryStore::new();
/// let limit = Limit::named("client", Policy::per_second(1).capacity(2).build()?)?;
/// let decision = store.spend_one(&limit, "alice".into(), 2);
/// assert!(decision.is_allowed());
/// assert_eq!(decision.outcome().remaining, 0);
/// assert!(!store.spend_one(&limit, "alice".into(), 1).is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "an unchecked decision limits nothing"]
pub struct BareDecision<'l>(Repr<'l>);

#[derive(Clone, Copy, Debug)]
enum Repr<'l> {
    /// A token bucket and its state after the decision.
    Bucket { bucket: &'l TokenBucket, cost: u64, tat: Tat, now: Time, allowed: bool },
    /// Any other policy; the outcome is computed eagerly.
    Outcome(Outcome),
}

/// Arrival time in the representation used for the decision.
#[derive(Clone, Copy, Debug)]
enum Tat {
    Exact(ExactTime),
    /// In units of `1/N` ns; converting it takes a division.
    Units(u64),
}

impl Tat {
    fn exact(self, bucket: &TokenBucket) -> ExactTime {
        match self {
            Self::Exact(exact) => exact,
            Self::Units(units) => {
                let n = u64::from(bucket.rate().tokens());
                // The remainder of a division by a 32-bit number has 32 bits.
                let part = u32::try_from(units % n).unwrap_or(u32::MAX);
                ExactTime { ns: units / n, part }
            }
        }
    }
}

impl<'l> BareDecision<'l> {
    /// Creates a decision from `tat`, the arrival time after it.
    #[inline]
    pub(crate) const fn from_bucket(
        bucket: &'l TokenBucket,
        cost: u64,
        tat: ExactTime,
        now: Time,
        allowed: bool,
    ) -> Self {
        Self(Repr::Bucket { bucket, cost, tat: Tat::Exact(tat), now, allowed })
    }

    /// Creates a decision from `tat`, the arrival time after it in units of `1/N` ns.
    #[inline]
    pub(crate) const fn from_units(
        bucket: &'l TokenBucket,
        cost: u64,
        tat: u64,
        now: Time,
        allowed: bool,
    ) -> Self {
        Self(Repr::Bucket { bucket, cost, tat: Tat::Units(tat), now, allowed })
    }

    pub(crate) const fn from_outcome(outcome: Outcome) -> Self {
        Self(Repr::Outcome(outcome))
    }

    /// Returns when the decision was made, if known.
    #[inline]
    pub(crate) const fn decided_at(&self) -> Option<Time> {
        match &self.0 {
            Repr::Bucket { now, .. } => Some(*now),
            Repr::Outcome(_) => None,
        }
    }

    /// Returns whether the charge was spent.
    #[must_use]
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        match &self.0 {
            Repr::Bucket { allowed, .. } => *allowed,
            Repr::Outcome(outcome) => outcome.retry.is_none(),
        }
    }

    /// Returns the remaining tokens, the time to full and, if denied, when to try again.
    #[must_use]
    #[inline]
    pub fn outcome(&self) -> Outcome {
        match self.0 {
            Repr::Outcome(outcome) => outcome,
            Repr::Bucket { bucket, tat, now, .. } => {
                let tat = tat.exact(bucket);
                let (remaining, reset) = (bucket.remaining(tat, now), bucket.reset(tat, now));
                Outcome::new(bucket.capacity(), remaining, Some(reset), self.retry())
            }
        }
    }

    /// Returns when to try again; `None` if the charge was spent.
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        match self.0 {
            Repr::Outcome(outcome) => outcome.retry,
            Repr::Bucket { allowed: true, .. } => None,
            Repr::Bucket { bucket, cost, tat, now, .. } => {
                let wait = |time: Time| Retry::After(time.since(now));
                let earliest = bucket.earliest(tat.exact(bucket), cost, now);
                Some(earliest.map_or(Retry::Never, wait))
            }
        }
    }
}
