//! Token bucket in one atomic word: exact, updated by compare-and-swap.
//!
//! For a rate of N tokens per P nanoseconds, time is counted in units of 1/N ns, so that a token
//! takes exactly P units. The word must last for 36 years plus the fill time of the bucket. That
//! holds for N up to 16: for 50/s, 7/min and 1.5/s, but not for 999/s. After that time the clock
//! stands still for the limiter, and it denies.

use std::sync::atomic::Ordering;

use tidegate_core::{ExactTime, Time, TokenBucket};

use crate::sync::AtomicU64;

/// Minimum time that the word must last, in nanoseconds.
const MIN_LIFETIME_NS: u64 = 36 * 31_557_600 * 1_000_000_000;

/// Value of a bucket that has moved to the locked bucket. It is later than every arrival time, so
/// `take` sees a denial and only then needs to check for it.
const CLOSED: u64 = u64::MAX;

/// A bucket without clock and lock. Requires a monotonic clock. A thread with an older reading than
/// another only puts itself at a disadvantage.
#[derive(Debug)]
pub(super) struct AtomicBucket {
    /// Arrival time, in units.
    tat: AtomicU64,
    /// Units per nanosecond.
    scale: u64,
    /// Units per token.
    token_units: u64,
    /// Units from empty to full.
    fill_units: u64,
    /// The last instant, after which time stands still. Chosen so that sums do not overflow.
    end: u64,
}

/// Result of a take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakeResult {
    pub(super) allowed: bool,
    /// Arrival time after the decision, in units.
    pub(super) tat: u64,
}

impl AtomicBucket {
    /// Creates a full bucket, if its arrival times fit a word.
    pub(super) fn new(bucket: &TokenBucket) -> Option<Self> {
        let (scale, token_units) = (u64::from(bucket.rate().tokens()), bucket.rate().period());
        let fill_units = token_units.checked_mul(bucket.capacity())?;
        // A saturated sum must be later than every instant at which a bucket can be empty.
        let end = (u64::MAX - 1).checked_sub(fill_units)?;
        let lasts_long_enough = MIN_LIFETIME_NS.checked_mul(scale)? <= end;
        lasts_long_enough.then(|| Self {
            tat: AtomicU64::new(0),
            scale,
            token_units,
            fill_units,
            end,
        })
    }

    /// Spends `cost` tokens at `now`, or denies. `None` if the bucket is closed.
    #[inline]
    pub(super) fn take(&self, cost: u64, now: Time) -> Option<TakeResult> {
        let now = now.as_nanos().saturating_mul(self.scale).min(self.end);
        let last = now + self.fill_units;
        let span = self.token_units.saturating_mul(cost);
        // The word guards no other data, so relaxed ordering is enough.
        let mut tat = self.tat.load(Ordering::Relaxed);
        loop {
            let after = tat.max(now).saturating_add(span);
            // A cost of zero is granted even in debt, and changes nothing.
            if after > last || cost == 0 {
                return (tat != CLOSED).then_some(TakeResult { allowed: cost == 0, tat });
            }
            let swapped =
                self.tat.compare_exchange_weak(tat, after, Ordering::Relaxed, Ordering::Relaxed);
            match swapped {
                Ok(_) => return Some(TakeResult { allowed: true, tat: after }),
                Err(other) => tat = other,
            }
        }
    }

    /// Returns the arrival time, in units and as an exact time. `None` if the bucket is closed.
    pub(super) fn load(&self) -> Option<(u64, ExactTime)> {
        let units = self.tat.load(Ordering::Relaxed);
        Some((units, self.exact(units)?))
    }

    /// Replaces the arrival time if it is still `before`. Returns whether it did.
    pub(super) fn replace(&self, before: u64, after: u64) -> bool {
        let (set, seen) = (Ordering::Relaxed, Ordering::Relaxed);
        self.tat.compare_exchange(before, after, set, seen).is_ok()
    }

    /// Closes the bucket permanently. Returns its last arrival time, unless it was closed already.
    pub(super) fn close(&self) -> Option<ExactTime> {
        self.exact(self.tat.swap(CLOSED, Ordering::Relaxed))
    }

    /// Converts an arrival time to units, if it fits.
    pub(super) fn units(&self, tat: ExactTime) -> Option<u64> {
        let units = tat.ns.checked_mul(self.scale)?.checked_add(tat.part.into())?;
        (units != CLOSED).then_some(units)
    }

    fn exact(&self, units: u64) -> Option<ExactTime> {
        // The remainder of a division by a 32-bit number has 32 bits.
        let part = u32::try_from(units % self.scale).unwrap_or(u32::MAX);
        (units != CLOSED).then_some(ExactTime { ns: units / self.scale, part })
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use proptest::prelude::*;
    use tidegate_core::{Policy, Rate};

    use super::super::BareDecision;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn bucket(rate: &str, capacity: u64) -> TokenBucket {
        let rate: Rate = rate.parse().unwrap();
        match Policy::rate(rate).capacity(capacity).build().unwrap() {
            Policy::Bucket(bucket) => bucket,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn atomic_bucket_takes_rates_that_fit_a_word_for_36_years() {
        for rate in ["50/s", "7/min", "1.5/s", "3/s", "0.1/s", "13/7s", "1/day", "1000000/s"] {
            assert!(AtomicBucket::new(&bucket(rate, 1_000)).is_some(), "{rate}");
        }
        for rate in ["17/min", "999/s", "999983/min"] {
            assert!(AtomicBucket::new(&bucket(rate, 1_000)).is_none(), "{rate}");
        }
        assert!(AtomicBucket::new(&bucket("13/3day", 14_000)).is_some());
        assert!(
            AtomicBucket::new(&bucket("13/3day", 15_000)).is_none(),
            "it takes nine years to fill"
        );
    }

    #[test]
    fn grants_are_exactly_capacity_plus_refill() {
        for (rate, n, period) in
            [("7/min", 7, 60 * SECOND), ("3/s", 3, SECOND), ("1.5/s", 3, 2 * SECOND)]
        {
            for step in [1_000_003, 333_333_333, SECOND / 3 + 1] {
                let atomic = AtomicBucket::new(&bucket(rate, 10)).unwrap();
                let (mut granted, mut now) = (0, 0);
                for _ in 0..5_000 {
                    while atomic.take(1, Time::from_nanos(now)).unwrap().allowed {
                        granted += 1;
                    }
                    // The bucket is drained at every step, so it is never full and loses no refill.
                    assert_eq!(granted, 10 + now * n / period, "{rate} at {now}");
                    now += step;
                }
            }
        }
    }

    #[test]
    fn denies_without_wrapping_at_the_end_of_its_range() {
        for rate in ["13/7s", "1/s"] {
            let atomic = AtomicBucket::new(&bucket(rate, 2)).unwrap();
            for now in [MIN_LIFETIME_NS, MIN_LIFETIME_NS + 1, u64::MAX / 2, u64::MAX] {
                let granted =
                    (0..10).filter(|_| atomic.take(1, Time::from_nanos(now)).unwrap().allowed);
                assert!(granted.count() <= 2, "{rate} at {now}");
            }
        }
    }

    #[test]
    fn threads_never_spend_a_token_twice() {
        let atomic = AtomicBucket::new(&bucket("1000000/s", 5_000)).unwrap();
        let now = &AtomicU64::new(0);
        let granted: u64 = std::thread::scope(|scope| {
            let worker = || {
                let mut granted = 0;
                for _ in 0..100_000 {
                    let at = now.fetch_add(7, Ordering::Relaxed);
                    granted += u64::from(atomic.take(1, Time::from_nanos(at)).unwrap().allowed);
                }
                granted
            };
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        let allowed = 5_000 + now.load(Ordering::Relaxed) / 1_000;
        assert!(granted <= allowed, "{granted} of {allowed}");
        assert!(granted + 100 > allowed, "{granted} of {allowed}");
    }

    proptest! {
        #[test]
        fn atomic_bucket_matches_the_exact_arithmetic(
            rate in prop_oneof![
                Just("7/min"), Just("3/s"), Just("1.5/s"), Just("50/s"), Just("600000000/s"),
                Just("0.1/s"), Just("13/7s")
            ],
            capacity in 1..20_u64,
            steps in prop::collection::vec(
                (
                    prop_oneof![Just(0), 1..5_u64, 1..2 * SECOND, 1..1_000 * SECOND],
                    prop_oneof![8 => 0..6_u64, 1 => 0..40_u64, 1 => Just(u64::MAX)],
                ),
                1..200,
            ),
        ) {
            let bucket = bucket(rate, capacity);
            let atomic = AtomicBucket::new(&bucket).unwrap();
            let (mut tat, mut now) = (ExactTime::ZERO, Time::ZERO);
            for (wait, cost) in steps {
                now = Time::from_nanos(now.as_nanos() + wait);
                let after = bucket.spend(tat, cost, now);
                let allowed = cost == 0 || bucket.fits(after, now);
                tat = if allowed { after } else { tat };
                let taken = atomic.take(cost, now).unwrap();
                let actual = BareDecision::from_units(&bucket, cost, taken.tat, now, taken.allowed);
                let expected = BareDecision::from_bucket(&bucket, cost, tat, now, allowed);
                prop_assert_eq!(actual.is_allowed(), allowed);
                prop_assert_eq!(actual.outcome(), expected.outcome());
                prop_assert_eq!(actual.retry(), expected.retry());
            }
        }
    }
}
