//! Requests per day, reset at midnight or refilled continuously.

use super::bucket::Bucket;
use super::window::CalendarDay;
use super::{LimitStatus, Wait};
use crate::calendar::Now;
use crate::limits::PerDay;

/// A limit of requests per day.
#[derive(Clone, Debug)]
pub(crate) enum Day {
    /// Resets at midnight.
    Calendar(CalendarDay),
    /// Refills continuously.
    Refilling(Bucket),
}

impl Day {
    pub(crate) fn new(limit: PerDay) -> Self {
        match limit {
            PerDay::UntilMidnight(limit, zone) => Self::Calendar(CalendarDay::new(limit, zone)),
            PerDay::Refilling(limit) => Self::Refilling(Bucket::of_a_day(limit)),
        }
    }

    pub(crate) fn advance(&mut self, now: Now) {
        match self {
            Self::Calendar(day) => day.advance(now),
            Self::Refilling(bucket) => bucket.refill(now.elapsed),
        }
    }

    pub(crate) fn wait(&self) -> Wait {
        match self {
            Self::Calendar(day) => day.wait(),
            Self::Refilling(bucket) => bucket.wait(1),
        }
    }

    pub(crate) fn take(&mut self) {
        match self {
            Self::Calendar(day) => day.take(),
            Self::Refilling(bucket) => bucket.take(1),
        }
    }

    /// Refunds a request that was taken at `taken`.
    pub(crate) fn refund(&mut self, taken: Now) {
        match self {
            Self::Calendar(day) => day.refund(taken),
            Self::Refilling(bucket) => bucket.refund(1),
        }
    }

    pub(crate) fn limit_status(&self) -> LimitStatus {
        match self {
            Self::Calendar(day) => day.limit_status(),
            Self::Refilling(bucket) => bucket.limit_status(),
        }
    }

    /// Returns the status of a refilling day.
    pub(crate) fn refilling(&self) -> Option<LimitStatus> {
        match self {
            Self::Calendar(_) => None,
            Self::Refilling(bucket) => Some(bucket.limit_status()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::{DAY, SECOND};

    #[test]
    fn refilling_day_restores_requests_evenly() {
        let at = |elapsed| Now { elapsed, wall: elapsed };
        let mut day = Day::new(PerDay::Refilling(200));
        (0..200).for_each(|_| day.take());
        assert_eq!(day.limit_status(), LimitStatus { limit: 200, remaining: 0, reset: DAY });
        assert_eq!(day.wait(), Wait::For(432 * SECOND));
        day.advance(at(432 * SECOND));
        assert_eq!((day.wait(), day.limit_status().remaining), (Wait::Now, 1));
        day.refund(at(0));
        assert_eq!(day.refilling().unwrap().remaining, 2);
    }
}
