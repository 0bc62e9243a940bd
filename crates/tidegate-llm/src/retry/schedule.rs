//! How long to wait before which retry.

use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate_core::ceil_millis;

use super::random::Random;

/// Doublings after which any delay has reached its cap.
const MAX_DOUBLINGS: u32 = 96;
/// What is added at most to a delay that a provider asked for: this, or a tenth of it if that is
/// more.
const MIN_SERVER_JITTER: Duration = Duration::from_secs(1);

/// How often to try again, and after which delays.
///
/// The delay before retry `i` is `base` doubled `i - 1` times and never above `cap`, less a random
/// part of up to `jitter_percent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    max_retries: u32,
    base: Duration,
    cap: Duration,
    jitter_percent: u8,
}

impl Default for Schedule {
    /// Eight retries after the first attempt, from one second up to 60, less up to a half.
    fn default() -> Self {
        let (base, cap) = (Duration::from_secs(1), Duration::from_secs(60));
        Self { max_retries: 8, base, cap, jitter_percent: 50 }
    }
}

impl Schedule {
    /// Retries after the first attempt. Default: 8, which makes nine attempts.
    pub(super) const fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = retries;
        self
    }

    /// The delay before the first retry. Default: 1 s.
    pub(super) const fn base(mut self, span: Duration) -> Self {
        self.base = span;
        self
    }

    /// The longest delay, unless a provider asks for a longer one. Default: 60 s.
    pub(super) const fn cap(mut self, span: Duration) -> Self {
        self.cap = span;
        self
    }

    /// How much of a delay is left to chance, up to 100. Default: 50. With 0 all delays are exact,
    /// and workers that fail together come back together.
    pub(super) fn jitter_percent(mut self, percent: u8) -> Self {
        self.jitter_percent = percent.min(100);
        self
    }

    /// The delay before the first retry.
    pub(super) const fn first_delay(&self) -> Duration {
        self.base
    }

    /// All attempts, the first one included.
    pub(super) const fn attempts(&self) -> u32 {
        self.max_retries.saturating_add(1)
    }

    /// The delay before a retry, the first one being 0, if the provider asked for `retry_after`. In whole
    /// milliseconds, so that what is logged is what is slept.
    pub(super) fn delay(
        &self,
        retry: u32,
        retry_after: Option<Duration>,
        random: &Random,
    ) -> Duration {
        let full = self.backoff(retry);
        let own = full.saturating_sub(random.fraction_of(self.max_jitter(full)));
        // A provider that was wrong about the last delays is not trusted with the next one: the
        // delay of the schedule holds too.
        let asked =
            retry_after.map_or(Duration::ZERO, |retry_after| self.with_jitter(retry_after, random));
        Duration::from_millis(ceil_millis(own.max(asked)))
    }

    /// How long all delays take together, if no provider asks for more: from the least, with the
    /// largest random parts, to the most, without any. What is over sooner than the least is survived.
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

    /// What a provider asked for, and a little more.
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
        assert_eq!(millis(exact, Some(SECOND), 0)[3], 8_000, "it was wrong three times");
    }

    #[test]
    fn window_is_the_sum_of_delays_and_exceeds_a_minute() {
        let window = Schedule::default().window();
        assert_eq!((*window.start(), *window.end()), (SECOND * 183 / 2, SECOND * 183));
        let uncapped = Schedule::default().cap(SECOND * 1_000).window();
        assert_eq!(*uncapped.end(), SECOND * 255);
        let local = Schedule::default().max_retries(3).base(SECOND / 2).window();
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
            let schedule = Schedule::default().base(base).cap(cap).jitter_percent(percent);
            let random = Random::from_fn(move || draw);
            let own = schedule.delay(retry, None, &random);
            prop_assert!(own <= cap.saturating_add(Duration::from_millis(1)));
            let window = schedule.max_retries(retry).window();
            prop_assert!(*window.start() <= *window.end());
            let asked = schedule.delay(retry, retry_after, &random);
            let most = Duration::from_millis(u64::MAX);
            prop_assert!(asked >= own && asked >= retry_after.unwrap_or_default().min(most));
        }
    }
}
