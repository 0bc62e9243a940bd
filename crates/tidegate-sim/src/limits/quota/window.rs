//! Fixed windows: slices of a minute, calendar days, and minutes of a ramp.
//!
//! Because windows do not slide, two adjacent ones can be used up around their boundary, which is
//! why pacing at exactly the limit fails occasionally.

use super::{LimitStatus, Wait};
use crate::calendar::{MINUTE, Now, SECOND, Zone};
use crate::limits::charging::CallCharge;

/// Requests or tokens per slice of a minute.
#[derive(Clone, Debug)]
pub(crate) struct Slices {
    share: u64,
    length: u64,
    phase: u64,
    index: u64,
    used: u64,
    remaining_time: u64,
}

impl Slices {
    /// Divides a limit per minute into slices. A slice allows its share, rounded up; the bucket per
    /// minute makes up for the rounding.
    pub(crate) fn new(per_minute: u64, length: u64, phase: u64) -> Self {
        let length = length.max(1);
        let share = (u128::from(per_minute) * u128::from(length)).div_ceil(u128::from(MINUTE));
        let share = u64::try_from(share).unwrap_or(u64::MAX).max(1);
        Self { share, length, phase, index: 0, used: 0, remaining_time: length }
    }

    pub(crate) fn advance(&mut self, now: Now) {
        let at = now.elapsed.saturating_add(self.phase);
        let index = at / self.length;
        self.remaining_time = self.length - at % self.length;
        if index != self.index {
            self.index = index;
            self.used = 0;
        }
    }

    /// Returns the time until `cost` fits. A cost above the share fits into an unused slice, since
    /// it would never be admitted otherwise.
    pub(crate) fn wait(&self, cost: u64) -> Wait {
        let fits = self.used.saturating_add(cost) <= self.share;
        if fits || cost == 0 || self.used == 0 { Wait::Now } else { Wait::For(self.remaining_time) }
    }

    pub(crate) fn take(&mut self, cost: u64) {
        self.used = self.used.saturating_add(cost);
    }

    /// Refunds `cost`, if it was taken in the current slice.
    pub(crate) fn refund(&mut self, taken: Now, cost: u64) {
        if taken.elapsed.saturating_add(self.phase) / self.length == self.index {
            self.used = self.used.saturating_sub(cost);
        }
    }

    pub(crate) fn limit_status(&self) -> LimitStatus {
        let remaining = self.share.saturating_sub(self.used);
        LimitStatus { limit: self.share, remaining, reset: self.remaining_time }
    }
}

/// What was admitted in the current second. Only for reporting.
#[derive(Clone, Debug)]
pub(crate) struct CurrentSecond {
    phase: u64,
    index: u64,
    admitted: CallCharge,
}

impl CurrentSecond {
    pub(crate) fn new(phase: u64) -> Self {
        Self { phase, index: 0, admitted: CallCharge::default() }
    }

    pub(crate) fn advance(&mut self, now: Now) {
        let index = now.elapsed.saturating_add(self.phase) / SECOND;
        if index != self.index {
            self.index = index;
            self.admitted = CallCharge::default();
        }
    }

    pub(crate) fn take(&mut self, charge: CallCharge) {
        self.admitted = self.admitted.plus(charge);
    }

    pub(crate) fn admitted(&self) -> CallCharge {
        self.admitted
    }
}

/// Requests per calendar day.
#[derive(Clone, Debug)]
pub(crate) struct CalendarDay {
    limit: u64,
    zone: Zone,
    number: Option<i128>,
    used: u64,
    remaining_time: u64,
}

impl CalendarDay {
    pub(crate) fn new(limit: u64, zone: Zone) -> Self {
        Self { limit, zone, number: None, used: 0, remaining_time: 0 }
    }

    pub(crate) fn advance(&mut self, now: Now) {
        let (number, remaining_time) = self.zone.day(now);
        self.remaining_time = remaining_time;
        if self.number != Some(number) {
            self.number = Some(number);
            self.used = 0;
        }
    }

    pub(crate) fn wait(&self) -> Wait {
        if self.used < self.limit { Wait::Now } else { Wait::For(self.remaining_time) }
    }

    pub(crate) fn take(&mut self) {
        self.used += 1;
    }

    pub(crate) fn refund(&mut self, taken: Now) {
        if self.number == Some(self.zone.day(taken).0) {
            self.used = self.used.saturating_sub(1);
        }
    }

    pub(crate) fn limit_status(&self) -> LimitStatus {
        let remaining = self.limit.saturating_sub(self.used);
        LimitStatus { limit: self.limit, remaining, reset: self.remaining_time }
    }
}

/// Limits the growth of requests from one minute to the next.
#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    floor: u64,
    factor: u64,
    phase: u64,
    index: u64,
    used: u64,
    before: u64,
    remaining_time: u64,
}

impl Ramp {
    pub(crate) fn new(floor: u64, factor: u64, phase: u64) -> Self {
        Self { floor, factor, phase, index: 0, used: 0, before: 0, remaining_time: MINUTE }
    }

    pub(crate) fn advance(&mut self, now: Now) {
        let at = now.elapsed.saturating_add(self.phase);
        let index = at / MINUTE;
        self.remaining_time = MINUTE - at % MINUTE;
        if index != self.index {
            self.before = if index == self.index + 1 { self.used } else { 0 };
            self.index = index;
            self.used = 0;
        }
    }

    pub(crate) fn wait(&self) -> Wait {
        if self.used < self.allowed() { Wait::Now } else { Wait::For(self.remaining_time) }
    }

    pub(crate) fn take(&mut self) {
        self.used += 1;
    }

    pub(crate) fn refund(&mut self, taken: Now) {
        if taken.elapsed.saturating_add(self.phase) / MINUTE == self.index {
            self.used = self.used.saturating_sub(1);
        }
    }

    pub(crate) fn limit_status(&self) -> LimitStatus {
        let limit = self.allowed();
        LimitStatus {
            limit,
            remaining: limit.saturating_sub(self.used),
            reset: self.remaining_time,
        }
    }

    fn allowed(&self) -> u64 {
        self.before.saturating_mul(self.factor).max(self.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::DAY;

    fn at(elapsed: u64) -> Now {
        Now { elapsed, wall: 1_767_225_600 * SECOND + elapsed }
    }

    #[test]
    fn slice_resets_at_its_boundary() {
        let mut slices = Slices::new(600, SECOND, SECOND / 4);
        slices.advance(at(0));
        for _ in 0..10 {
            assert_eq!(slices.wait(1), Wait::Now);
            slices.take(1);
        }
        // With a phase of a quarter second, the first slice lasts three quarters.
        assert_eq!(slices.wait(1), Wait::For(3 * SECOND / 4));
        slices.advance(at(3 * SECOND / 4 - 1));
        assert_eq!(slices.wait(1), Wait::For(1));
        slices.advance(at(3 * SECOND / 4));
        assert_eq!(slices.limit_status(), LimitStatus { limit: 10, remaining: 10, reset: SECOND });
    }

    #[test]
    fn slice_share_is_rounded_up() {
        assert_eq!(Slices::new(6, SECOND, 0).limit_status().limit, 1);
        assert_eq!(Slices::new(100, SECOND, 0).limit_status().limit, 2);
        assert_eq!(Slices::new(100, 10 * SECOND, 0).limit_status().limit, 17);
    }

    #[test]
    fn refund_after_the_boundary_is_ignored() {
        let mut slices = Slices::new(60, SECOND, 0);
        slices.advance(at(0));
        slices.take(1);
        slices.advance(at(SECOND));
        slices.take(1);
        slices.refund(at(0), 1);
        assert_eq!(slices.limit_status().remaining, 0);
        slices.refund(at(SECOND), 1);
        assert_eq!(slices.limit_status().remaining, 1);
    }

    #[test]
    fn current_second_counts_and_resets() {
        let mut second = CurrentSecond::new(SECOND / 4);
        let charge = CallCharge { requests: 1, input: 5, output: 2 };
        second.advance(at(0));
        second.take(charge);
        second.advance(at(3 * SECOND / 4 - 1));
        second.take(charge);
        assert_eq!(second.admitted(), CallCharge { requests: 2, input: 10, output: 4 });
        second.advance(at(3 * SECOND / 4));
        assert_eq!(second.admitted(), CallCharge::default());
    }

    #[test]
    fn calendar_day_lasts_until_midnight() {
        let mut day = CalendarDay::new(2, Zone::hours(-8));
        day.advance(at(0));
        day.take();
        day.take();
        assert_eq!(day.wait(), Wait::For(8 * 3_600 * SECOND));
        day.advance(at(8 * 3_600 * SECOND - 1));
        assert_eq!(day.wait(), Wait::For(1));
        day.advance(at(8 * 3_600 * SECOND));
        assert_eq!(day.limit_status(), LimitStatus { limit: 2, remaining: 2, reset: DAY });
    }

    #[test]
    fn ramp_allows_a_multiple_of_the_previous_minute() {
        let mut ramp = Ramp::new(3, 2, 0);
        for (minute, allowed) in [(0, 3), (1, 6), (2, 12), (4, 3)] {
            ramp.advance(at(minute * MINUTE));
            assert_eq!(ramp.limit_status().limit, allowed);
            for _ in 0..allowed {
                assert_eq!(ramp.wait(), Wait::Now);
                ramp.take();
            }
            assert_eq!(ramp.wait(), Wait::For(MINUTE));
        }
    }
}
