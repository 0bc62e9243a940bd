//! Counters of a retry layer.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::layer::RetryLayer;
use super::run::Reason;
use crate::telemetry::Counter;

/// Calls that recovered are counted by their number of retries, up to this one.
const MAX_COUNTED_RETRIES: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Whether the number of retries was logged.
    pub(super) is_logged: AtomicBool,
    pub(super) calls: Counter,
    pub(super) attempts: Counter,
    retries: Counter,
    pub(super) rate_limit_hits: Counter,
    recovered: [Counter; MAX_COUNTED_RETRIES],
    not_retryable: Counter,
    exhausted: Counter,
    out_of_time: Counter,
    unreachable: Counter,
    server_delay_too_long: Counter,
    budget_denials: Counter,
    slept_ms: Counter,
}

impl Counters {
    /// Records a retry and the delay before it.
    pub(super) fn slept(&self, delay: Duration) {
        self.retries.up();
        self.slept_ms.add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
    }

    /// Records a call that succeeded after at least one retry.
    pub(super) fn recovered(&self, retries: u32) {
        let index =
            usize::try_from(retries).unwrap_or(MAX_COUNTED_RETRIES).clamp(1, MAX_COUNTED_RETRIES)
                - 1;
        if let Some(counter) = self.recovered.get(index) {
            counter.up();
        }
    }

    pub(super) fn gave_up(&self, reason: Reason) {
        let counter = match reason {
            Reason::NotRetryable => &self.not_retryable,
            Reason::NoAttemptsLeft => &self.exhausted,
            Reason::Deadline | Reason::Refused => &self.out_of_time,
            Reason::Unreachable => &self.unreachable,
            Reason::ServerDelayTooLong => &self.server_delay_too_long,
            Reason::Budget => &self.budget_denials,
        };
        counter.up();
    }
}

// Counts over all services of this layer and its clones.
impl RetryLayer {
    /// Calls started.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.policy.counters.calls.read()
    }

    /// Attempts of all calls.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.policy.counters.attempts.read()
    }

    /// Attempts after the first one of a call.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.policy.counters.retries.read()
    }

    /// Sum of the delays before retries.
    #[must_use]
    pub fn total_delay(&self) -> Duration {
        Duration::from_millis(self.policy.counters.slept_ms.read())
    }

    /// Attempts that the provider rejected because of a rate limit.
    #[must_use]
    pub fn rate_limit_hits(&self) -> u64 {
        self.policy.counters.rate_limit_hits.read()
    }

    /// Calls that succeeded after 1, 2, 3, … retries; the last entry includes calls with more.
    #[must_use]
    pub fn recovered(&self) -> [u64; MAX_COUNTED_RETRIES] {
        self.policy.counters.recovered.each_ref().map(Counter::read)
    }

    /// Calls that failed with an error that a retry cannot fix.
    #[must_use]
    pub fn not_retryable(&self) -> u64 {
        self.policy.counters.not_retryable.read()
    }

    /// Calls that failed on their last attempt.
    #[must_use]
    pub fn exhausted(&self) -> u64 {
        self.policy.counters.exhausted.read()
    }

    /// Calls that had no time left for another attempt, or got no permit for it in time.
    #[must_use]
    pub fn out_of_time(&self) -> u64 {
        self.policy.counters.out_of_time.read()
    }

    /// Calls whose provider could not be reached.
    #[must_use]
    pub fn unreachable(&self) -> u64 {
        self.policy.counters.unreachable.read()
    }

    /// Calls given up because the provider asked for a delay above
    /// [`max_server_delay`](Self::max_server_delay).
    #[must_use]
    pub fn server_delay_too_long(&self) -> u64 {
        self.policy.counters.server_delay_too_long.read()
    }

    /// Calls that were not retried because the budget was spent.
    #[must_use]
    pub fn budget_denials(&self) -> u64 {
        self.policy.counters.budget_denials.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_with_more_retries_share_the_last_counter() {
        let counters = Counters::default();
        [1, 2, 2, 16, 17, u32::MAX].into_iter().for_each(|retries| counters.recovered(retries));
        let recovered = counters.recovered.each_ref().map(Counter::read);
        assert_eq!((recovered[0], recovered[1], recovered[15]), (1, 2, 3));
        assert_eq!(recovered.iter().sum::<u64>(), 6);
    }
}
