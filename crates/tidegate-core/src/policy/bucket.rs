//! Token bucket in exact arithmetic.
//!
//! The state of a bucket is one number, the theoretical arrival time (TAT): the instant at which
//! the bucket will be full again. A bucket whose TAT has passed is equivalent to no bucket. The
//! only other state is the end of a hold, if there is one.

use core::time::Duration;

use crate::policy::PolicyError;
use crate::policy::exact::ExactTime;
use crate::policy::rate::Rate;
use crate::policy::wide::mul_div_ceil;
use crate::time::{MAX_SPAN, Time, nanos};

/// Token bucket policy: rate, capacity, maximum debt and reservation horizon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    rate: Rate,
    capacity: u64,
    max_debt: u64,
    horizon: u64,
    /// Time in which one token refills.
    token_time: ExactTime,
    /// Time from empty to full.
    fill_time: ExactTime,
    /// Time from the maximum debt to full.
    time_to_full_from_max_debt: ExactTime,
    /// Maximum distance of a valid arrival time from the present.
    max_tat_distance: ExactTime,
}

impl TokenBucket {
    pub(crate) fn new(
        rate: Rate,
        capacity: u64,
        max_debt: Option<u64>,
        horizon: Duration,
    ) -> Result<Self, PolicyError> {
        if capacity < 1 {
            return Err(PolicyError::Capacity);
        }
        let max_debt = max_debt.unwrap_or(capacity);
        let span = |tokens: u128| {
            ExactTime::from_units(tokens.saturating_mul(rate.period().into()), rate.tokens())
        };
        let time_to_full_from_max_debt = span(u128::from(capacity) + u128::from(max_debt));
        let horizon = nanos(horizon);
        let max_tat_distance =
            time_to_full_from_max_debt.plus(ExactTime::from_nanos(horizon), rate.tokens());
        if max_tat_distance.ceil() > nanos(MAX_SPAN) {
            return Err(PolicyError::TooLong);
        }
        let (token_time, fill_time) = (span(1), span(capacity.into()));
        Ok(Self {
            rate,
            capacity,
            max_debt,
            horizon,
            token_time,
            fill_time,
            time_to_full_from_max_debt,
            max_tat_distance,
        })
    }

    /// Returns the refill rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the number of tokens in a full bucket: the burst.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the maximum number of tokens below zero that a settlement may charge.
    #[must_use]
    pub const fn max_debt(&self) -> u64 {
        self.max_debt
    }

    /// Returns how far ahead a reservation may start.
    #[must_use]
    pub const fn horizon(&self) -> Duration {
        Duration::from_nanos(self.horizon)
    }

    /// Returns the time from empty to full.
    #[must_use]
    pub const fn time_to_full(&self) -> ExactTime {
        self.fill_time
    }

    /// Returns the time from the maximum debt to full.
    #[must_use]
    pub const fn time_to_full_from_max_debt(&self) -> ExactTime {
        self.time_to_full_from_max_debt
    }

    /// Returns the maximum distance of a valid arrival time from the present: the time from the
    /// maximum debt to full, plus the horizon.
    #[must_use]
    pub const fn max_tat_distance(&self) -> ExactTime {
        self.max_tat_distance
    }

    /// Returns the time in which `tokens` refill: exactly `tokens * P / N`.
    ///
    /// More tokens than capacity and debt together give a span beyond every clamp.
    #[must_use]
    #[inline]
    pub fn span(&self, tokens: u64) -> ExactTime {
        if tokens == 1 {
            return self.token_time;
        }
        if self.token_time.part == 0 {
            return ExactTime { ns: self.token_time.ns.saturating_mul(tokens), part: 0 };
        }
        let units = u128::from(tokens).saturating_mul(self.rate.period().into());
        ExactTime::from_units(units, self.rate.tokens())
    }

    /// Normalizes a stored arrival time to this rate. A fraction that is too large was written
    /// under another rate: the store was given two policies for one limit.
    #[must_use]
    #[inline]
    pub fn normalize(&self, tat: ExactTime) -> ExactTime {
        if tat.part >= self.rate.tokens() { ExactTime::from_nanos(tat.ceil()) } else { tat }
    }

    /// Returns the arrival time in effect at `now`: the stored one, lowered if a clock that stepped
    /// back left it too far ahead, and raised by a hold.
    ///
    /// After a hold the bucket is empty and refills from there.
    #[must_use]
    #[inline]
    pub fn effective_tat(&self, tat: ExactTime, held_until: Time, now: Time) -> ExactTime {
        let n = self.rate.tokens();
        let mut tat = tat;
        if tat.ns > now.as_nanos() {
            tat = self.normalize(tat).min(exact(now).plus(self.max_tat_distance, n));
        }
        if held_until > Time::ZERO {
            tat = tat.max(exact(held_until).plus(self.fill_time, n));
        }
        tat
    }

    /// Returns the first whole nanosecond, not before `now`, at which `cost` tokens fit; `None` if
    /// they never do.
    #[must_use]
    #[inline]
    pub fn earliest(&self, effective: ExactTime, cost: u64, now: Time) -> Option<Time> {
        if cost > self.capacity {
            return None;
        }
        let n = self.rate.tokens();
        let after = effective.max(exact(now)).plus(self.span(cost), n);
        Some(Time::from_nanos(after.minus(self.fill_time, n).ceil()).max(now))
    }

    /// Returns the arrival time after spending `cost` tokens at `start`.
    #[must_use]
    #[inline]
    pub fn spend(&self, effective: ExactTime, cost: u64, start: Time) -> ExactTime {
        effective.max(exact(start)).plus(self.span(cost), self.rate.tokens())
    }

    /// Returns the arrival time after spending `cost` tokens at `now`, if they fit. Combines
    /// [`spend`](Self::spend) and [`fits`](Self::fits), with a short path for rates at which a
    /// token takes whole nanoseconds.
    #[must_use]
    #[inline]
    pub fn try_spend(&self, effective: ExactTime, cost: u64, now: Time) -> Option<ExactTime> {
        if self.rate.tokens() > 1 || effective.part > 0 {
            let after = self.spend(effective, cost, now);
            return self.fits(after, now).then_some(after);
        }
        let now = now.as_nanos();
        let after = effective.ns.max(now).saturating_add(self.token_time.ns.saturating_mul(cost));
        (after <= now.saturating_add(self.fill_time.ns)).then_some(ExactTime::from_nanos(after))
    }

    /// Returns whether a spend that leads to the arrival time `after` fits at `now`. Equivalent to
    /// [`earliest`](Self::earliest) not being later than `now`.
    #[must_use]
    #[inline]
    pub fn fits(&self, after: ExactTime, now: Time) -> bool {
        after <= exact(now).plus(self.fill_time, self.rate.tokens())
    }

    /// Returns the number of whole tokens available at `now`.
    #[must_use]
    #[inline]
    pub fn remaining(&self, effective: ExactTime, now: Time) -> u64 {
        let n = self.rate.tokens();
        let gap = effective.minus(exact(now), n);
        if gap == ExactTime::ZERO {
            return self.capacity;
        }
        let available = self.fill_time.minus(gap, n);
        match available
            .ns
            .checked_mul(n.into())
            .and_then(|units| units.checked_add(available.part.into()))
        {
            Some(units) => units / self.rate.period(),
            None => u64::try_from(available.units(n) / u128::from(self.rate.period()))
                .unwrap_or(self.capacity),
        }
    }

    /// Returns the content, in thousandths of a token, of a bucket that will be full after `reset`.
    /// For display.
    #[must_use]
    pub fn millitokens(&self, reset: Duration) -> u64 {
        let n = self.rate.tokens();
        let available = self.fill_time.minus(ExactTime::from_nanos(nanos(reset)), n).units(n);
        let milli = available.saturating_mul(1_000) / u128::from(self.rate.period());
        u64::try_from(milli).unwrap_or(u64::MAX)
    }

    /// Returns the time until the bucket is full, rounded up to a nanosecond.
    #[must_use]
    #[inline]
    pub fn reset(&self, effective: ExactTime, now: Time) -> Duration {
        Duration::from_nanos(effective.minus(exact(now), self.rate.tokens()).ceil())
    }

    /// Charges `tokens` more, into debt if necessary. Returns the new arrival time and whether the
    /// debt reached its maximum, in which case the excess is forgiven.
    #[must_use]
    pub fn charge(&self, tat: ExactTime, tokens: u64, now: Time) -> (ExactTime, bool) {
        let n = self.rate.tokens();
        let tat = self.effective_tat(tat, Time::ZERO, now).max(exact(now));
        let wanted = tat.plus(self.span(tokens), n);
        let bound = exact(now).plus(self.time_to_full_from_max_debt, n);
        // A reservation may have moved the arrival time past the bound. Do not lower it.
        if wanted > bound { (tat.max(bound), true) } else { (wanted, false) }
    }

    /// Refunds `tokens`, less the span `built_on` that later reservations already depend on. The
    /// bucket never exceeds its capacity.
    #[must_use]
    pub fn refund(&self, tat: ExactTime, tokens: u64, built_on: ExactTime, now: Time) -> ExactTime {
        let n = self.rate.tokens();
        let tat = self.effective_tat(tat, Time::ZERO, now);
        if tat <= exact(now) {
            return tat;
        }
        tat.minus(self.span(tokens).minus(built_on, n), n).max(exact(now))
    }

    /// Returns the time until `tokens` consecutive tokens have been granted by a bucket that would
    /// be full after `reset`.
    #[must_use]
    pub fn wait_for(&self, tokens: u64, reset: Duration) -> Duration {
        let n = self.rate.tokens();
        let after = ExactTime::from_nanos(nanos(reset)).plus(self.span(tokens), n);
        Duration::from_nanos(after.minus(self.fill_time, n).ceil())
    }

    /// Returns the time to full after spending `cost` tokens of a bucket that would be full after
    /// `reset`.
    pub(crate) fn reset_after(&self, cost: u64, reset: Duration) -> Duration {
        let full = ExactTime::from_nanos(nanos(reset)).plus(self.span(cost), self.rate.tokens());
        Duration::from_nanos(full.ceil())
    }

    /// Returns the number of whole tokens between two arrival times. `before` may have passed
    /// already.
    #[must_use]
    pub fn tokens_between(&self, before: ExactTime, after: ExactTime, now: Time) -> u64 {
        let n = self.rate.tokens();
        let before = self.effective_tat(before, Time::ZERO, now).max(exact(now));
        let tokens = after.minus(before, n).units(n) / u128::from(self.rate.period());
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    /// Returns the number of tokens that refill in `span`, rounded up.
    #[must_use]
    pub fn tokens_ceil(&self, span: ExactTime) -> u64 {
        let tokens = span.units(self.rate.tokens()).div_ceil(self.rate.period().into());
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    /// Returns what has been charged to the bucket since a reservation left it at `stamp`.
    #[must_use]
    pub fn charged_since(&self, tat: ExactTime, stamp: ExactTime) -> ExactTime {
        tat.minus(stamp, self.rate.tokens())
    }

    /// Returns the arrival time of an empty bucket.
    #[must_use]
    pub fn empty_tat(&self, now: Time) -> ExactTime {
        exact(now).plus(self.fill_time, self.rate.tokens())
    }

    /// Converts the arrival time `tat` under `old` to this policy, keeping the tokens, capped at
    /// the new capacity and rounded down.
    #[must_use]
    pub fn keep_tokens(&self, old: &Self, tat: ExactTime, now: Time) -> ExactTime {
        let deficit = old.deficit_units(tat, now);
        if deficit == 0 {
            return ExactTime::ZERO;
        }
        let (old_period, period) = (u128::from(old.rate.period()), u128::from(self.rate.period()));
        let (whole, rest) = (deficit / old_period, deficit % old_period);
        let rest = (rest * period).div_ceil(old_period);
        // The number of tokens is kept, so the deficit changes with the capacity.
        let grown = whole.saturating_add(self.capacity.into());
        let Some(whole) = grown.checked_sub(old.capacity.into()) else {
            // More than a whole token above the new capacity: the fraction cannot outweigh it.
            return ExactTime::ZERO;
        };
        let time_to_full_from_max_debt = u128::from(self.capacity) + u128::from(self.max_debt);
        let units =
            whole.min(time_to_full_from_max_debt).saturating_mul(period).saturating_add(rest);
        self.tat_after(units, now)
    }

    /// Converts the arrival time `tat` under `old` to this policy, keeping the fill level as a
    /// fraction of the capacity, rounded down.
    #[must_use]
    pub fn keep_proportion(&self, old: &Self, tat: ExactTime, now: Time) -> ExactTime {
        // The ratio of deficit to fill time is kept. Both are in units of 1/N ns.
        let full = |bucket: &Self| u128::from(bucket.capacity) * u128::from(bucket.rate.period());
        self.tat_after(mul_div_ceil(old.deficit_units(tat, now), full(self), full(old)), now)
    }

    /// Returns the arrival time `units` of 1/N ns after `now`, limited by the maximum debt.
    fn tat_after(&self, units: u128, now: Time) -> ExactTime {
        if units == 0 {
            return ExactTime::ZERO;
        }
        let n = self.rate.tokens();
        exact(now).plus(ExactTime::from_units(units, n).min(self.time_to_full_from_max_debt), n)
    }

    /// Returns the time to full in units of `1/N` ns.
    fn deficit_units(&self, tat: ExactTime, now: Time) -> u128 {
        let n = self.rate.tokens();
        self.effective_tat(tat, Time::ZERO, now).minus(exact(now), n).units(n)
    }
}

#[inline]
fn exact(time: Time) -> ExactTime {
    ExactTime::from_nanos(time.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn bucket(rate: &str, capacity: u64) -> TokenBucket {
        TokenBucket::new(rate.parse().unwrap(), capacity, None, Duration::ZERO).unwrap()
    }

    fn admitted(rate: &str, capacity: u64, step: u64, total: u64) -> u64 {
        let bucket = bucket(rate, capacity);
        let (mut tat, mut count) = (ExactTime::ZERO, 0);
        for now in (0..=total).step_by(usize::try_from(step).unwrap()) {
            let now = Time::from_nanos(now);
            let effective = bucket.effective_tat(tat, Time::ZERO, now);
            if bucket.earliest(effective, 1, now) == Some(now) {
                tat = bucket.spend(effective, 1, now);
                count += 1;
            }
        }
        count
    }

    /// A limiter that rounds the refill down and drops the remainder starves callers: it grants 10
    /// of 110, or 510 of 710.
    #[test]
    fn no_fraction_of_a_token_is_lost_at_any_polling_rate() {
        assert_eq!(admitted("1/s", 10, SECOND / 10, 100 * SECOND), 110);
        assert_eq!(admitted("1/s", 10, 499 * SECOND / 1_000, 499 * SECOND), 509);
        assert_eq!(admitted("1/s", 10, 7 * SECOND / 10, 700 * SECOND), 710);
        assert_eq!(admitted("1/s", 10, 9 * SECOND / 10, 900 * SECOND), 910);
        for (rate, per_1000_s) in
            [("1.5/s", 1_500), ("1.999/s", 1_999), ("0.7/s", 700), ("50.5/s", 50_500)]
        {
            for step in [SECOND / 1_000, SECOND / 997, 3 * SECOND / 1_000, SECOND / 101] {
                let last_poll = u128::from(100 * SECOND / step * step);
                let exact = 100 + last_poll * per_1000_s / (1_000 * u128::from(SECOND));
                let count = admitted(rate, 100, step, 100 * SECOND);
                assert_eq!(u128::from(count), exact, "{rate} polled every {step} ns");
            }
        }
    }

    /// Polls slightly less often than once a minute for ten years; the bucket is never full.
    #[test]
    fn no_drift_over_ten_years() {
        let year = 365 * 24 * 3_600 * SECOND;
        let (step, total) = (61 * SECOND + 7, 10 * year);
        let polls = total / step + 1;
        // The rate is twice that of the polls: every poll is granted.
        assert_eq!(admitted("2/min", 1, step, total), polls);
        // 7 per 8 minutes is slower than the polls: exactly the refill is granted.
        let last_poll = u128::from(total / step * step);
        let exact = 2 + last_poll * 7 / u128::from(480 * SECOND);
        assert_eq!(u128::from(admitted("7/480s", 2, step, total)), exact);
    }

    /// There are three ways to test whether a cost fits, each for a different call site.
    #[test]
    fn earliest_fits_and_try_spend_agree() {
        for rate in ["1/s", "3/7s", "1.5/s", "999/min"] {
            let bucket = bucket(rate, 10);
            for tat in (0..25 * SECOND).step_by(97_654_321).map(ExactTime::from_nanos) {
                for (now, cost) in
                    [(0, 1), (5 * SECOND + 1, 3), (9 * SECOND, 10), (SECOND, 11), (0, u64::MAX)]
                {
                    let now = Time::from_nanos(now);
                    let effective = bucket.effective_tat(tat, Time::ZERO, now);
                    let after = bucket.spend(effective, cost, now);
                    let fits = bucket.fits(after, now);
                    let due = bucket.earliest(effective, cost, now) == Some(now);
                    assert_eq!(fits, due, "{rate} {tat:?} {now:?} {cost}");
                    let spent = bucket.try_spend(effective, cost, now);
                    assert_eq!(spent, fits.then_some(after), "{rate} {tat:?} {now:?} {cost}");
                }
            }
        }
    }

    #[test]
    fn millitokens_show_fractions() {
        let bucket = bucket("2/s", 10);
        assert_eq!(bucket.millitokens(Duration::ZERO), 10_000);
        assert_eq!(bucket.millitokens(Duration::from_millis(125)), 9_750);
        assert_eq!(bucket.millitokens(Duration::from_secs(60)), 0);
    }

    #[test]
    fn bucket_is_empty_after_a_hold_and_refills_at_its_rate() {
        let bucket = bucket("1/s", 10);
        let until = Time::from_nanos(5 * SECOND);
        let level = |secs: u64| {
            let now = Time::from_nanos(secs * SECOND);
            bucket.remaining(bucket.effective_tat(ExactTime::ZERO, until, now), now)
        };
        assert_eq!([level(0), level(5), level(6), level(14), level(15)], [0, 0, 1, 9, 10]);
    }

    #[test]
    fn clock_step_back_locks_out_for_a_bounded_time() {
        let bucket = bucket("1/s", 10);
        let tat = ExactTime::from_nanos(1_000_000 * SECOND);
        let effective = bucket.effective_tat(tat, Time::ZERO, Time::ZERO);
        assert_eq!(effective, ExactTime::from_nanos(20 * SECOND));
    }

    #[test]
    fn spans_over_a_hundred_years_are_rejected() {
        let rate: Rate = "1/10day".parse().unwrap();
        assert!(TokenBucket::new(rate, 1_000, None, Duration::ZERO).is_ok());
        assert_eq!(TokenBucket::new(rate, 2_000, None, Duration::ZERO), Err(PolicyError::TooLong));
        let fast: Rate = "4000000000/s".parse().unwrap();
        assert_eq!(
            TokenBucket::new(fast, u64::MAX, None, Duration::ZERO),
            Err(PolicyError::TooLong)
        );
    }
}
