//! One token bucket without a key: the cheapest limiter of this crate.
//!
//! Its state is one number, the arrival time. If that fits a machine word, a decision is one clock
//! reading and one compare-and-swap (`direct/atomic_bucket.rs`). Otherwise, on clocks that may run
//! backwards, and after a policy change, the general arithmetic runs under a small lock
//! (`direct/locked_bucket.rs`). Both are exact. Keys, lists and holds need a store and are not
//! supported. Waiting is behind the `tokio` feature.

mod atomic_bucket;
mod locked_bucket;
#[cfg(all(test, loom))]
mod model_loom;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
#[cfg(feature = "tokio")]
mod wait;

use std::time::Duration;

use tidegate_core::{
    BucketEntry, BucketLocation, ChargeRecord, Decision, Denial, ExactTime, Grant, Now, Policy,
    PolicyError, Receipt, ReceiptError, Settlement, State, Time, TokenBucket, decide, hash,
};

use crate::clock::{Clock, ClockSource};
use crate::operation::bare_decision::BareDecision;
use atomic_bucket::AtomicBucket;
use locked_bucket::{LockedBucket, LockedState};

/// A limiter with one token bucket and no keys, for a whole process or one connection.
///
/// ```
/// use tidegate::{DirectLimiter, Policy};
/// let limiter = DirectLimiter::new(Policy::per_second(1).capacity(2).build()?)?;
/// assert!(limiter.take(2).is_allowed());
/// assert!(!limiter.take(1).is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DirectLimiter {
    /// The bucket, until it is closed because its state no longer fits a word.
    atomic: Option<AtomicBucket>,
    clock: ClockSource,
    /// Policy of the atomic bucket, and of the locked bucket before its first change.
    bucket: TokenBucket,
    /// The bucket if there is no atomic one, or once that is closed.
    locked: LockedBucket,
    /// Id of this limiter in its receipts.
    issuer: u64,
}

impl DirectLimiter {
    /// Creates a limiter with a full bucket on the default [clock](crate::clock).
    ///
    /// # Errors
    /// If the policy is not a token bucket.
    pub fn new(policy: Policy) -> Result<Self, PolicyError> {
        Self::with_source(policy, ClockSource::default())
    }

    /// Creates a limiter with a full bucket on another clock. A clock from outside this crate may
    /// be set back. As with a store, that grants nothing extra, and locks callers out for at most
    /// the time the bucket takes to fill from its maximum debt.
    ///
    /// # Errors
    /// If the policy is not a token bucket.
    pub fn with_clock(policy: Policy, clock: impl Clock + 'static) -> Result<Self, PolicyError> {
        Self::with_source(policy, clock.into_source())
    }

    fn with_source(policy: Policy, clock: ClockSource) -> Result<Self, PolicyError> {
        let Policy::Bucket(bucket) = policy else { return Err(PolicyError::NotABucket) };
        let atomic = AtomicBucket::new(&bucket).filter(|_| clock.is_monotonic());
        Ok(Self { atomic, clock, bucket, locked: LockedBucket::new(bucket), issuer: next_issuer() })
    }

    /// Spends `cost` tokens now, or denies and spends nothing.
    // Always inlined: as a call, the decision would be returned through memory, which doubles the
    // cost of a decision on a cached clock.
    #[inline(always)]
    pub fn take(&self, cost: u64) -> BareDecision<'_> {
        if let Some(atomic) = &self.atomic {
            let now = self.clock.now();
            if let Some(taken) = atomic.take(cost, now) {
                return BareDecision::from_units(&self.bucket, cost, taken.tat, now, taken.allowed);
            }
        }
        self.take_locked(cost)
    }

    /// Spends `cost` tokens as of an instant at most `max_wait` ahead, within the horizon of the
    /// policy, or denies and spends nothing. The caller must wait for [`Grant::wait`] before
    /// proceeding. Refund an unused reservation with [`settle`](Self::settle).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Decision, DirectLimiter, Policy};
    /// use tidegate_memory::clock::ManualClock;
    /// let policy = Policy::per_second(1).capacity(1).build()?;
    /// let limiter = DirectLimiter::with_clock(policy, ManualClock::new())?;
    /// assert!(limiter.take(1).is_allowed());
    /// let second = Duration::from_secs(1);
    /// let Decision::Allowed(grant) = limiter.reserve(1, second) else { unreachable!() };
    /// assert_eq!(grant.wait, second);
    /// assert!(!limiter.reserve(1, second).is_allowed(), "the next token comes a second later");
    /// limiter.settle(-1, Some(&grant.receipt))?;
    /// assert!(limiter.reserve(1, second).is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(&self, cost: u64, max_wait: Duration) -> Decision {
        self.update(cost, |entry, generation, now| {
            let entries = std::slice::from_mut(entry);
            let Some(start) = decide::earliest_start(entries, max_wait, now) else {
                let outcomes = decide::denied_outcomes(entries, std::iter::once(0), now);
                entries[0].repair(now);
                return Decision::Denied(Denial::new(outcomes));
            };
            decide::spend(entries, start, now);
            let state = entries[0].state();
            let record = ChargeRecord {
                bucket: self.issuer,
                location: BucketLocation::Own,
                generation,
                state,
            };
            let receipt = Receipt::new(self.issuer, start, [record]);
            let outcomes = decide::granted_outcomes(entries, std::iter::once(0), now);
            Decision::Allowed(Grant::new(outcomes, start.since(now.time), receipt))
        })
    }

    /// Corrects an earlier spend by `delta` tokens: a positive delta charges more, into debt if
    /// necessary, and a negative one refunds. The refund of a reservation that has not started
    /// excludes what later reservations depend on.
    ///
    /// # Errors
    /// If the receipt was not issued by this limiter.
    pub fn settle(
        &self,
        delta: i64,
        receipt: Option<&Receipt>,
    ) -> Result<Settlement, ReceiptError> {
        if let Some(receipt) = receipt {
            receipt.check(self.issuer, std::iter::once(self.issuer))?;
        }
        let spend = receipt.and_then(|receipt| Some((receipt.charges().first()?, receipt.start())));
        Ok(self.update(0, |entry, generation, now| {
            let settled = entry.settle(delta, spend, generation, now);
            let entries = std::slice::from_ref(entry);
            decide::settlement(entries, &[settled], std::iter::once(0), now)
        }))
    }

    /// Replaces the policy. The tokens in the bucket are kept, capped at the new capacity; a full
    /// bucket stays full. From then on, decisions take a lock instead of using a compare-and-swap.
    ///
    /// ```
    /// use tidegate::{DirectLimiter, Policy};
    /// let limiter = DirectLimiter::new(Policy::per_second(1).capacity(2).build()?)?;
    /// assert!(limiter.take(1).is_allowed());
    /// limiter.reconfigure(Policy::per_second(1).capacity(10).build()?)?;
    /// assert!(!limiter.take(2).is_allowed(), "one token is left");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the policy is not a token bucket.
    pub fn reconfigure(&self, policy: Policy) -> Result<(), PolicyError> {
        let Policy::Bucket(bucket) = policy else { return Err(PolicyError::NotABucket) };
        self.locked.with(|locked| {
            self.switch_to_locked(locked);
            let now = self.clock.now_ordered();
            locked.tat = bucket.keep_tokens(&locked.bucket, locked.tat, now);
            locked.bucket = bucket;
            // Zero stands for the initial policy.
            locked.generation = locked.generation.checked_add(1).unwrap_or(1);
        });
        Ok(())
    }

    /// Returns the current policy.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy::Bucket(self.locked.with(|locked| locked.bucket))
    }

    /// Not inlined: its register pressure would slow down decisions on the atomic bucket.
    #[inline(never)]
    fn take_locked(&self, cost: u64) -> BareDecision<'_> {
        // If the clock is set back, the arrival time is lowered accordingly, so such a clock is
        // read under the lock. With a monotonic clock, a reading older than that of another thread
        // does no harm.
        let early = self.clock.is_monotonic().then(|| self.clock.now());
        self.locked.with(|LockedState { tat, bucket, generation }| {
            let now = early.unwrap_or_else(|| self.clock.now_ordered());
            if early.is_none() {
                *tat = bucket.effective_tat(*tat, Time::ZERO, now);
            }
            // A cost of zero is granted even in debt, and changes nothing.
            let after = bucket.spend(*tat, cost, now);
            let allowed = cost == 0 || bucket.fits(after, now);
            if allowed && cost > 0 {
                *tat = after;
            }
            if *generation == 0 {
                BareDecision::from_bucket(&self.bucket, cost, *tat, now, allowed)
            } else {
                // The policy may have changed by the time the outcome is read, so compute it now.
                let decision = BareDecision::from_bucket(bucket, cost, *tat, now, allowed);
                BareDecision::from_outcome(decision.outcome())
            }
        })
    }

    /// Updates the bucket with a function of its entry, its generation and the time. `change` may
    /// be called more than once.
    fn update<R>(
        &self,
        cost: u64,
        mut change: impl FnMut(&mut BucketEntry<'_>, u32, Now) -> R,
    ) -> R {
        let mut changed = |bucket: TokenBucket, generation, tat: &mut ExactTime| {
            // Not before the reading with which this arrival time was written.
            let now = Now::at(self.clock.now_ordered());
            let policy = Policy::Bucket(bucket);
            let mut entry = BucketEntry::new(&policy, State::Bucket(*tat), Time::ZERO, cost);
            let result = change(&mut entry, generation, now);
            if let State::Bucket(after) = entry.state() {
                *tat = after;
            }
            result
        };
        if let Some(atomic) = &self.atomic {
            while let Some((units, before)) = atomic.load() {
                let mut after = before;
                let result = changed(self.bucket, 0, &mut after);
                match atomic.units(after) {
                    _ if after == before => return result,
                    Some(after) if atomic.replace(units, after) => return result,
                    Some(_) => {}
                    None => self.locked.with(|locked| self.switch_to_locked(locked)),
                }
            }
        }
        self.locked
            .with(|LockedState { tat, bucket, generation }| changed(*bucket, *generation, tat))
    }

    /// Switches to the locked bucket permanently, unless that has already happened.
    fn switch_to_locked(&self, locked: &mut LockedState) {
        if let Some(tat) = self.atomic.as_ref().and_then(AtomicBucket::close) {
            locked.tat = tat;
        }
    }
}

/// Returns an id that is unique among the direct limiters of this process.
fn next_issuer() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static ISSUED: AtomicU64 = AtomicU64::new(1);
    hash::mix(ISSUED.fetch_add(1, Ordering::Relaxed))
}
