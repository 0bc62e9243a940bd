//! What came of retries, counted.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::run::Reason;
use crate::telemetry::Counter;

/// Numbers of retries that are told apart among the calls that recovered.
const RECOVERED: usize = 16;

/// What came of the calls through one layer so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls that began.
    pub calls: u64,
    /// Attempts of all calls.
    pub attempts: u64,
    /// Attempts after the first one of a call.
    pub retries: u64,
    /// Attempts that the provider turned down because of a rate limit.
    pub rate_limit_hits: u64,
    /// Calls that recovered after 1, 2, 3, … retries; the last one counts those with more, too.
    pub recovered: [u64; RECOVERED],
    /// Calls that failed in a way that trying again does not help.
    pub not_retryable: u64,
    /// Calls that had no attempts left.
    pub exhausted: u64,
    /// Calls that had no time left for another attempt, or got no permit for it in time.
    pub out_of_time: u64,
    /// Calls whose provider could not be reached.
    pub unreachable: u64,
    /// Calls that the provider put off for longer than is accepted.
    pub put_off: u64,
    /// Calls that could not be retried because the budget was spent.
    pub budget_denials: u64,
    /// What all retries have slept; by `retries`, the average delay.
    pub slept: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Whether the log was told how often calls are tried again.
    pub(super) is_logged: AtomicBool,
    pub(super) calls: Counter,
    pub(super) attempts: Counter,
    retries: Counter,
    pub(super) rate_limit_hits: Counter,
    recovered: [Counter; RECOVERED],
    not_retryable: Counter,
    exhausted: Counter,
    out_of_time: Counter,
    unreachable: Counter,
    put_off: Counter,
    budget_denials: Counter,
    slept_ms: Counter,
}

impl Counters {
    /// A retry has slept, and goes on.
    pub(super) fn slept(&self, delay: Duration) {
        self.retries.up();
        self.slept_ms.add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
    }

    /// A call was answered after so many retries, of which there was one at least.
    pub(super) fn recovered(&self, retries: u32) {
        let place = usize::try_from(retries).unwrap_or(RECOVERED).clamp(1, RECOVERED) - 1;
        if let Some(counter) = self.recovered.get(place) {
            counter.up();
        }
    }

    pub(super) fn gave_up(&self, reason: Reason) {
        let counter = match reason {
            Reason::NotRetryable => &self.not_retryable,
            Reason::NoAttemptsLeft => &self.exhausted,
            Reason::Deadline | Reason::NotAdmitted => &self.out_of_time,
            Reason::Unreachable => &self.unreachable,
            Reason::PutOff => &self.put_off,
            Reason::Budget => &self.budget_denials,
        };
        counter.up();
    }

    pub(super) fn read(&self) -> Stats {
        Stats {
            calls: self.calls.read(),
            attempts: self.attempts.read(),
            retries: self.retries.read(),
            rate_limit_hits: self.rate_limit_hits.read(),
            recovered: self.recovered.each_ref().map(Counter::read),
            not_retryable: self.not_retryable.read(),
            exhausted: self.exhausted.read(),
            out_of_time: self.out_of_time.read(),
            unreachable: self.unreachable.read(),
            put_off: self.put_off.read(),
            budget_denials: self.budget_denials.read(),
            slept: Duration::from_millis(self.slept_ms.read()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_retries_are_counted_together() {
        let counters = Counters::default();
        [1, 2, 2, 16, 17, u32::MAX].into_iter().for_each(|retries| counters.recovered(retries));
        let recovered = counters.read().recovered;
        assert_eq!((recovered[0], recovered[1], recovered[15]), (1, 2, 3));
        assert_eq!(recovered.iter().sum::<u64>(), 6);
    }
}
