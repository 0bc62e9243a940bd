//! The attempts of one call: what to do after each, and what the log is told.

use std::time::Duration;

use tokio::time::Instant;

use super::policy::Policy;
use super::run::{Attempt, Reason, Retryable};
use crate::telemetry::Retried;

pub(super) struct Tries<'a> {
    policy: &'a Policy,
    begin: Instant,
    end: Option<Instant>,
    /// Attempts that were made, with the one under way. One that came to a wait does not count.
    made: u32,
    /// Whether one of them hit a rate limit.
    rate_limited: bool,
}

impl<'a> Tries<'a> {
    pub(super) fn begin(policy: &'a Policy, deadline: Option<Duration>) -> Self {
        let now = Instant::now();
        policy.budget.earn(now);
        policy.counters.calls.up();
        // What ends after the end of time has no end.
        let end = deadline.and_then(|span| now.checked_add(span));
        Self { policy, begin: now, end, made: 0, rate_limited: false }
    }

    pub(super) const fn made(&self) -> u32 {
        self.made
    }

    /// The next attempt.
    pub(super) fn attempt(&mut self) -> Attempt {
        self.made = self.made.saturating_add(1);
        self.policy.counters.attempts.up();
        Attempt { number: self.made, left: self.left(Instant::now()) }
    }

    /// The attempt was answered.
    pub(super) fn answered(&self) {
        let retries = self.made.saturating_sub(1);
        if retries == 0 {
            return;
        }
        self.policy.counters.recovered(retries);
        self.policy.observer.recovered(&self.policy.provider, retries);
        let what = if self.rate_limited { "Rate limit" } else { "Call" };
        tracing::info!(
            "{what} recovered after {retries} retries (function: {})",
            self.policy.function
        );
    }

    /// The attempt failed: how long to sleep before the next one, or why there is none.
    pub(super) fn failed(&mut self, error: &impl Retryable) -> Result<Duration, Reason> {
        let Policy { counters, function, schedule, .. } = self.policy;
        let (made, total) = (self.made, schedule.attempts());
        if error.is_rate_limit() {
            counters.rate_limit_hits.up();
            self.rate_limited = true;
        }
        let next = self.next(error);
        let (provider, delay) = (&self.policy.provider, next.ok());
        self.policy.observer.failed(&Retried::new(provider, error.class(), made, delay));
        match next {
            Ok(delay) => {
                let what = if error.is_rate_limit() { "Rate limit hit" } else { "Call failed" };
                tracing::warn!(
                    "{what} (attempt {made}/{total}), backing off for {:.3}s \
                     (function: {function}): {error}",
                    delay.as_secs_f64()
                );
                if self.is_free(error) {
                    self.made = made.saturating_sub(1);
                }
            }
            Err(reason) => {
                counters.gave_up(reason);
                // A call that is simply wrong is its caller's to tell.
                if made > 1 || reason != Reason::NotRetryable {
                    tracing::error!(
                        "Gave up (attempt {made}/{total}), {reason} (function: {function}): {error}"
                    );
                }
            }
        }
        next
    }

    /// Whether the attempt came to nothing but a wait. Waits do not go on for ever: after the time
    /// that all delays of the schedule take, they are attempts like others.
    fn is_free(&self, error: &impl Retryable) -> bool {
        error.is_wait() && self.begin.elapsed() < self.policy.schedule.window().most
    }

    fn next(&self, error: &impl Retryable) -> Result<Duration, Reason> {
        let Policy { schedule, random, budget, max_server_delay, .. } = self.policy;
        if !error.is_retryable() {
            return Err(Reason::NotRetryable);
        }
        if self.made >= schedule.attempts() && !self.is_free(error) {
            return Err(Reason::NoAttemptsLeft);
        }
        let told = error.retry_after();
        if told.is_some_and(|told| told > *max_server_delay) {
            return Err(Reason::PutOff);
        }
        let (now, retry) = (Instant::now(), self.made.saturating_sub(1));
        let delay = schedule.delay(retry, told, random);
        // An attempt at the very end of the time could not be answered any more.
        if self.left(now).is_some_and(|left| delay >= left) {
            return Err(Reason::Deadline);
        }
        // Last, so that nothing is taken from the budget for a retry that is not made.
        if error.is_wait() || budget.spend(now) { Ok(delay) } else { Err(Reason::Budget) }
    }

    fn left(&self, now: Instant) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(now))
    }
}
