//! An arrival time of any rate under a small lock of its own.
//!
//! The lock is a bit beside the remainder of the arrival time, so that it is taken by one
//! compare-and-swap and given back by one store. It is held for a few nanoseconds; whoever finds
//! it taken spins a little and then lets others run.

use std::sync::atomic::Ordering;

use tidegate_core::{Bucket, Exact, Time};

use crate::clock::Source;
use crate::operation::verdict::Verdict;
use crate::sync::{AtomicU64, Backoff};

/// Set while somebody decides.
const HELD: u64 = 1 << 63;

/// The state of a direct limiter whose arrival time does not fit a word.
#[derive(Debug)]
pub(super) struct LockedBucket {
    ns: AtomicU64,
    /// The part of a nanosecond, and the lock.
    part: AtomicU64,
}

/// The right to change the state. A clock that is not ours may panic under it, so giving back is
/// left to `drop`.
struct Held<'l> {
    bucket: &'l LockedBucket,
    tat: Exact,
}

impl LockedBucket {
    pub(super) fn new() -> Self {
        Self { ns: AtomicU64::new(0), part: AtomicU64::new(0) }
    }

    /// Spends `cost` tokens by the clock, or nothing. Not inlined: the other form of a direct limiter would
    /// pay for the registers that this one needs.
    #[inline(never)]
    pub(super) fn take<'b>(&self, bucket: &'b Bucket, cost: u64, clock: &Source) -> Verdict<'b> {
        // A clock that may be set back has its arrival time brought back with it, so it is read
        // under the lock. Else an older reading than that of another thread does no harm.
        let early = clock.is_steady().then(|| clock.now());
        let mut held = self.hold();
        let now = early.unwrap_or_else(|| clock.now_after());
        if early.is_none() {
            held.tat = bucket.effective(held.tat, Time::ZERO, now);
        }
        // What costs nothing is granted also to those in debt, and moves nothing.
        let after = bucket.spend(held.tat, cost, now);
        let allowed = cost == 0 || bucket.fits(after, now);
        if allowed && cost > 0 {
            held.tat = after;
        }
        Verdict::of_bucket(bucket, cost, held.tat, now, allowed)
    }

    fn hold(&self) -> Held<'_> {
        let mut backoff = Backoff::default();
        loop {
            let part = self.part.load(Ordering::Relaxed) & !HELD;
            let (taken, seen) = (Ordering::Acquire, Ordering::Relaxed);
            if self.part.compare_exchange_weak(part, part | HELD, taken, seen).is_ok() {
                let ns = self.ns.load(Ordering::Relaxed);
                // Written below from 32 bits.
                let part = u32::try_from(part).unwrap_or(u32::MAX);
                return Held { bucket: self, tat: Exact { ns, part } };
            }
            backoff.wait();
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.bucket.ns.store(self.tat.ns, Ordering::Relaxed);
        self.bucket.part.store(self.tat.part.into(), Ordering::Release);
    }
}
