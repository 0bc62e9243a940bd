//! One token bucket without a key: the cheapest limiter there is here.
//!
//! Its state is one number, the arrival time. Where that fits a machine word, a decision is a
//! reading of the clock and a compare-and-swap (`direct/atomic_bucket.rs`); else, on clocks that may
//! run backwards, and after a change of the policy, it is the general arithmetic under a small lock
//! (`direct/locked_bucket.rs`). Both are exact. What this limiter refuses to do: keys, lists and
//! holds, which need a store. Waiting needs tokio's timers, and is a feature.

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
    Account, Bucket, Decision, Denial, Exact, Grant, Now, Place, Policy, PolicyError, Receipt,
    ReceiptError, Settlement, Stamp, State, Time, decide, hash,
};

use crate::clock::{Clock, ClockSource};
use crate::operation::bare_decision::BareDecision;
use atomic_bucket::AtomicBucket;
use locked_bucket::{LockedBucket, LockedState};

/// One token bucket without a key, for a whole process or one connection.
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
    /// The bucket, until it is closed because its state does not fit a word any more.
    atomic: Option<AtomicBucket>,
    clock: ClockSource,
    /// The policy of the word, and of the locked bucket before its first change.
    bucket: Bucket,
    /// The bucket when there is no word, or when that is closed.
    locked: LockedBucket,
    /// The number on its receipts.
    issuer: u64,
}

impl DirectLimiter {
    /// A full bucket on the clock of the machine: the counter of the processor where it can be
    /// trusted.
    ///
    /// # Errors
    /// When the policy is no token bucket.
    pub fn new(policy: Policy) -> Result<Self, PolicyError> {
        Self::with_source(policy, ClockSource::default())
    }

    /// A full bucket on another clock. A clock that is not of this crate may be set back; as with a
    /// store, that grants nothing, and locks nobody out for longer than the bucket takes to fill
    /// from its deepest debt.
    ///
    /// # Errors
    /// When the policy is no token bucket.
    pub fn with_clock(policy: Policy, clock: impl Clock + 'static) -> Result<Self, PolicyError> {
        Self::with_source(policy, clock.into_source())
    }

    fn with_source(policy: Policy, clock: ClockSource) -> Result<Self, PolicyError> {
        let Policy::Bucket(bucket) = policy else { return Err(PolicyError::NotABucket) };
        let atomic = AtomicBucket::new(&bucket).filter(|_| clock.is_steady());
        Ok(Self { atomic, clock, bucket, locked: LockedBucket::new(bucket), issuer: next_issuer() })
    }

    /// Spends `cost` tokens now, or denies and spends nothing.
    // Always: by a call the decision would go through memory, which doubles the price of a decision
    // by a cached clock.
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

    /// Spends `cost` tokens as of an instant that is at most `max_wait` ahead, and not further than
    /// the horizon of the policy; or denies and spends nothing. Who is allowed waits for
    /// [`Grant::wait`] before he goes on. A reservation that is not used is given back by
    /// [`settle`](Self::settle).
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
    /// assert!(!limiter.reserve(1, second).is_allowed(), "that would be a second later");
    /// limiter.settle(-1, Some(&grant.receipt))?;
    /// assert!(limiter.reserve(1, second).is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(&self, cost: u64, max_wait: Duration) -> Decision {
        self.update(cost, |entry, generation, now| {
            let entries = std::slice::from_mut(entry);
            let Some(start) = decide::start(entries, max_wait, now) else {
                let outcomes = decide::refused(entries, std::iter::once(0), now);
                entries[0].repair(now);
                return Decision::Denied(Denial::new(outcomes));
            };
            decide::spend(entries, start, now);
            let state = entries[0].state();
            let stamp = Stamp { bucket: self.issuer, place: Place::Own, generation, state };
            let receipt = Receipt::new(self.issuer, start, [stamp]);
            let outcomes = decide::granted(entries, std::iter::once(0), now);
            Decision::Allowed(Grant::new(outcomes, start.since(now.time), receipt))
        })
    }

    /// Corrects an earlier spend by `delta` tokens: positive charges more, into debt if need be,
    /// negative gives back. Of a reservation that has not begun, what others have reserved behind it
    /// is not given back.
    ///
    /// # Errors
    /// When the receipt is not of this limiter.
    pub fn settle(
        &self,
        delta: i64,
        receipt: Option<&Receipt>,
    ) -> Result<Settlement, ReceiptError> {
        if let Some(receipt) = receipt {
            receipt.check(self.issuer, std::iter::once(self.issuer))?;
        }
        let spend = receipt.and_then(|receipt| Some((receipt.stamps().first()?, receipt.start())));
        Ok(self.update(0, |entry, generation, now| {
            let settled = entry.settle(delta, spend, generation, now);
            let entries = std::slice::from_ref(entry);
            decide::settlement(entries, &[settled], std::iter::once(0), now)
        }))
    }

    /// Replaces the policy. The tokens in the bucket stay, cut to the new capacity; a full bucket
    /// stays full. From then on decisions are made under a lock and not by a compare-and-swap.
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
    /// When the policy is no token bucket.
    pub fn reconfigure(&self, policy: Policy) -> Result<(), PolicyError> {
        let Policy::Bucket(bucket) = policy else { return Err(PolicyError::NotABucket) };
        self.locked.with(|locked| {
            self.switch_to_locked(locked);
            let now = self.clock.now_after();
            locked.tat = bucket.keep_tokens(&locked.bucket, locked.tat, now);
            locked.bucket = bucket;
            // Zero is the policy at the start.
            locked.generation = locked.generation.checked_add(1).unwrap_or(1);
        });
        Ok(())
    }

    /// The policy now.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy::Bucket(self.locked.with(|locked| locked.bucket))
    }

    /// Not inlined: decisions on a word would pay for the registers that this one needs.
    #[inline(never)]
    fn take_locked(&self, cost: u64) -> BareDecision<'_> {
        // A clock that may be set back has its arrival time brought back with it, so it is read
        // under the lock. Else an older reading than that of another thread does no harm.
        let early = self.clock.is_steady().then(|| self.clock.now());
        self.locked.with(|LockedState { tat, bucket, generation }| {
            let now = early.unwrap_or_else(|| self.clock.now_after());
            if early.is_none() {
                *tat = bucket.effective(*tat, Time::ZERO, now);
            }
            // What costs nothing is granted also to those in debt, and moves nothing.
            let after = bucket.spend(*tat, cost, now);
            let allowed = cost == 0 || bucket.fits(after, now);
            if allowed && cost > 0 {
                *tat = after;
            }
            if *generation == 0 {
                BareDecision::from_bucket(&self.bucket, cost, *tat, now, allowed)
            } else {
                // The policy may be another one by the time that somebody asks.
                let decision = BareDecision::from_bucket(bucket, cost, *tat, now, allowed);
                BareDecision::from_outcome(decision.outcome())
            }
        })
    }

    /// Changes the bucket by a function of its entry, its generation and the time, which may be
    /// called more than once.
    fn update<R>(&self, cost: u64, mut change: impl FnMut(&mut Account<'_>, u32, Now) -> R) -> R {
        let mut changed = |bucket: Bucket, generation, tat: &mut Exact| {
            // Not before any reading by which this arrival time was written.
            let now = Now::at(self.clock.now_after());
            let policy = Policy::Bucket(bucket);
            let mut entry = Account::new(&policy, State::Bucket(*tat), Time::ZERO, cost);
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

    /// Goes on under the lock for good, if that has not happened yet.
    fn switch_to_locked(&self, locked: &mut LockedState) {
        if let Some(tat) = self.atomic.as_ref().and_then(AtomicBucket::close) {
            locked.tat = tat;
        }
    }
}

/// A number that no other direct limiter of this process has.
fn next_issuer() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static ISSUED: AtomicU64 = AtomicU64::new(1);
    hash::mix(ISSUED.fetch_add(1, Ordering::Relaxed))
}
