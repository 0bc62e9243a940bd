//! What limits allow over time: the shortest time for some work, and the used share.
//!
//! Reports compare clients with these numbers. Admission does not use them: they ignore concurrency,
//! limits per day and acceleration, and count in floating point.

use std::time::Duration;

use super::Limits;
use crate::calendar::MINUTE;

/// Requests and tokens that were charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of requests.
    pub requests: u64,
    /// Input and output tokens together.
    pub tokens: u64,
}

impl Limits {
    /// Returns the shortest time in which the limits per minute and their slices admit some work:
    /// the start of the slice of the last request, or the time when a bucket, which starts full, has
    /// refilled enough, whichever is later. It ends before the last response.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_sim::{Limits, Work};
    ///
    /// let limits = Limits::new().requests_per_minute(600).slice(Duration::from_secs(1));
    /// let work = Work { requests: 101, tokens: 0 };
    /// assert_eq!(limits.shortest_time(work), Duration::from_secs(10));
    /// ```
    #[must_use]
    pub fn shortest_time(&self, work: Work) -> Duration {
        let slices = self.requests_per_slice().map_or(0.0, |(length, allowed)| {
            let before_last = work.requests.div_ceil(allowed).saturating_sub(1);
            as_float(before_last * length) - as_float(self.phase)
        });
        let refill = |used: u64, limit: Option<u64>| {
            limit.map_or(0.0, |limit| {
                (as_float(used) - as_float(limit)) * as_float(MINUTE) / as_float(limit)
            })
        };
        let buckets = refill(work.requests, self.requests).max(refill(work.tokens, self.tokens));
        Duration::from_secs_f64(slices.max(buckets).max(0.0) / as_float(NANOS_PER_SECOND))
    }

    /// Returns the share of what the limits allow in a time from the start that some work used, by
    /// the limit of which it used most. 1 if there is no limit per minute.
    #[must_use]
    pub fn used_share(&self, work: Work, after: Duration) -> f64 {
        let nanos = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        let bucket = |limit: u64| as_float(limit) * (1.0 + as_float(nanos) / as_float(MINUTE));
        let requests = match self.requests_per_slice() {
            Some((length, allowed)) => {
                let slices = nanos.saturating_add(self.phase) / length + 1;
                Some(as_float(slices * allowed))
            }
            None => self.requests.map(bucket),
        };
        let shares = [(work.requests, requests), (work.tokens, self.tokens.map(bucket))];
        let shares = shares.into_iter().filter_map(|(used, all)| Some(as_float(used) / all?));
        shares.reduce(f64::max).unwrap_or(1.0)
    }

    /// Returns the length of a slice in nanoseconds and the requests that it allows.
    fn requests_per_slice(&self) -> Option<(u64, u64)> {
        let (length, limit) = (self.slice?, self.requests?);
        let allowed = (u128::from(limit) * u128::from(length)).div_ceil(u128::from(MINUTE));
        Some((length, u64::try_from(allowed).unwrap_or(u64::MAX)))
    }
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[expect(clippy::cast_precision_loss, reason = "the numbers are only for reports")]
fn as_float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half a second of the first slice is over at the start.
    fn limits() -> Limits {
        let limits = Limits::new().requests_per_minute(600).tokens_per_minute(200_000);
        limits.slice(Duration::from_secs(1)).phase(Duration::from_millis(548))
    }

    #[test]
    fn the_shortest_time_is_that_of_the_limit_that_binds() {
        let seconds =
            |requests, tokens| limits().shortest_time(Work { requests, tokens }).as_secs_f64();
        assert_eq!(seconds(10, 1_000), 0.0);
        assert!((seconds(11, 1_000) - 0.452).abs() < 1e-6);
        assert!((seconds(1_200, 200_000) - 118.452).abs() < 1e-6);
        assert!((seconds(1_200, 800_000) - 180.0).abs() < 1e-6);
        let without_slices = Limits::new().requests_per_minute(600);
        let work = Work { requests: 900, tokens: 0 };
        assert_eq!(without_slices.shortest_time(work), Duration::from_secs(30));
    }

    #[test]
    fn all_of_the_quota_is_one() {
        let share = |requests, tokens, millis| {
            limits().used_share(Work { requests, tokens }, Duration::from_millis(millis))
        };
        assert_eq!(share(10, 0, 451), 1.0);
        assert_eq!(share(10, 0, 453), 0.5);
        assert_eq!(share(1, 400_000, 60_000), 1.0);
        assert_eq!(Limits::new().used_share(Work::default(), Duration::ZERO), 1.0);
    }
}
