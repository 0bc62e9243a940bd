//! Delays between attempts.

use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate_core::ceil_millis;

use super::random::Random;

/// Number of doublings after which any delay has reached the cap.
const MAX_DOUBLINGS: u32 = 96;
/// Minimum of the maximum jitter added to a delay that the provider asked for; for longer delays
/// the maximum is a tenth of the delay.
const MIN_SERVER_JITTER: Duration = Duration::from_secs(1);

/// Number of retries and delays before them.
///
/// The delay before retry `i` is `base` doubled `i - 1` times, at most `cap`, minus random jitter
/// of up to `jitter_percent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    max_retries: u32,
    base: Duration,
    cap: Duration,
    jitter_percent: u8,
}

impl Default for Schedule {
    /// Eight retries after the first attempt, with delays from 1 s to 60 s minus up to 50 % jitter.
    fn default() -> Self {
        let (base, cap) = (Duration::from_secs(1), Duration::from_secs(60));
        Self { max_retries: 8, base, cap, jitter_percent: 50 }
    }
}

impl Schedule {
    pub(super) const fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = retries;
        self
    }

    pub(super) const fn base_delay(mut self, span: Duration) -> Self {
        self.base = span;
        self
    }

    pub(super) const fn max_delay(mut self, span: Duration) -> Self {
        self.cap = span;
        self
    }

    pub(super) fn jitter_percent(mut self, percent: u8) -> Self {
        self.jitter_percent = percent.min(100);
        self
    }

    pub(super) const fn first_delay(&self) -> Duration {
        self.base
    }

    /// Returns the number of attempts, including the first.
    pub(super) const fn attempts(&self) -> u32 {
        self.max_retries.saturating_add(1)
    }

    /// Returns the delay before a retry, counted from 0, if the provider asked for `retry_after`.
    /// It is in whole milliseconds, so that the logged delay is exact.
    pub(super) fn delay(
        &self,
        retry: u32,
        retry_after: Option<Duration>,
        random: &Random,
    ) -> Duration {
        let full = self.backoff(retry);
        let own = full.saturating_sub(random.fraction_of(self.max_jitter(full)));
        // The schedule's own delay is a minimum, since a provider may keep asking for delays that
        // are too short.
        let server_delay =
            retry_after.map_or(Duration::ZERO, |retry_after| self.with_jitter(retry_after, random));
        Duration::from_millis(ceil_millis(own.max(server_delay)))
    }

    /// Returns the minimum (with full jitter) and maximum (without jitter) sum of all delays.
    pub(super) fn window(&self) -> RangeInclusive<Duration> {
        let doubling = self.max_retries.min(MAX_DOUBLINGS);
        let rest = self.max_retries - doubling;
        let of = |delay: &dyn Fn(u32) -> Duration| {
            let longest = delay(MAX_DOUBLINGS).saturating_mul(rest);
            (0..doubling).map(delay).fold(longest, Duration::saturating_add)
        };
        let least = |retry| {
            let full = self.backoff(retry);
            full.saturating_sub(self.max_jitter(full))
        };
        of(&least)..=of(&|retry| self.backoff(retry))
    }

    fn backoff(&self, retry: u32) -> Duration {
        let mut span = self.base;
        for _ in 0..retry.min(MAX_DOUBLINGS) {
            if span >= self.cap {
                break;
            }
            span = span.saturating_mul(2);
        }
        span.min(self.cap)
    }

    fn max_jitter(&self, full: Duration) -> Duration {
        full.saturating_mul(self.jitter_percent.into()) / 100
    }

    /// Adds jitter to a delay that the provider asked for.
    fn with_jitter(&self, retry_after: Duration, random: &Random) -> Duration {
        if self.jitter_percent == 0 {
            return retry_after;
        }
        retry_after.saturating_add(random.fraction_of(MIN_SERVER_JITTER.max(retry_after / 10)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn millis(schedule: Schedule, retry_after: Option<Duration>, draw: u64) -> Vec<u128> {
        let random = Random::from_fn(move || draw);
        (0..8).map(|retry| schedule.delay(retry, retry_after, &random).as_millis()).collect()
    }

    #[test]
    fn delays_double_up_to_the_cap_and_jitter_takes_at_most_half() {
        let (exact, default) = (Schedule::default().jitter_percent(0), Schedule::default());
        let full = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000];
        assert_eq!(millis(exact, None, u64::MAX), full);
        assert_eq!(millis(default, None, 0), full);
        // The largest draw is a little below one, and delays are rounded up.
        assert_eq!(millis(default, None, u64::MAX), full.map(|full| full / 2 + 1));
    }

    #[test]
    fn server_delay_is_never_shortened() {
        let retry_after = |span, draw| millis(Schedule::default(), Some(SECOND * span), draw)[0];
        assert_eq!((retry_after(5, 0), retry_after(5, u64::MAX)), (5_000, 6_000));
        assert_eq!((retry_after(60, 0), retry_after(60, u64::MAX)), (60_000, 66_000));
        let exact = Schedule::default().jitter_percent(0);
        assert_eq!(millis(exact, Some(SECOND * 5), u64::MAX)[0], 5_000);
        assert_eq!(millis(exact, Some(SECOND), 0)[3], 8_000, "the schedule is a minimum");
    }

    #[test]
    fn window_is_the_sum_of_delays_and_exceeds_a_minute() {
        let window = Schedule::default().window();
        assert_eq!((*window.start(), *window.end()), (SECOND * 183 / 2, SECOND * 183));
        let uncapped = Schedule::default().max_delay(SECOND * 1_000).window();
        assert_eq!(*uncapped.end(), SECOND * 255);
        let local = Schedule::default().max_retries(3).base_delay(SECOND / 2).window();
        assert_eq!(*local.end(), SECOND * 7 / 2);
        let none = Schedule::default().max_retries(0).window();
        assert_eq!(*none.end(), Duration::ZERO);
        let endless = Schedule::default().max_retries(u32::MAX).window();
        assert_eq!(*endless.end(), SECOND * 63 + SECOND * 60 * (u32::MAX - 6));
    }

    proptest! {
        #[test]
        fn any_delay_stays_within_its_bounds(
            (base, cap, percent) in (any::<Duration>(), any::<Duration>(), any::<u8>()),
            (retry, draw) in (any::<u32>(), any::<u64>()),
            retry_after in any::<Option<Duration>>(),
        ) {
            let schedule = Schedule::default().base_delay(base).max_delay(cap).jitter_percent(percent);
            let random = Random::from_fn(move || draw);
            let own = schedule.delay(retry, None, &random);
            prop_assert!(own <= cap.saturating_add(Duration::from_millis(1)));
            let window = schedule.max_retries(retry).window();
            prop_assert!(*window.start() <= *window.end());
            let delay = schedule.delay(retry, retry_after, &random);
            let most = Duration::from_millis(u64::MAX);
            prop_assert!(delay >= own && delay >= retry_after.unwrap_or_default().min(most));
        }
    }
}
