//! Retry state of one call: decides after each attempt whether to retry, and logs it.

use std::time::Duration;

use tokio::time::Instant;

use super::policy::Policy;
use super::run::{Attempt, Reason, Retryable, TimeBudget};

/// Retries of a call whose provider cannot be reached, after a quarter of the usual delays. They
/// cover a connection refused by chance; a provider that is down is not worth more.
const UNREACHABLE_RETRIES: u32 = 2;

pub(super) struct RetryState<'a> {
    policy: &'a Policy,
    started: Instant,
    end: Option<Instant>,
    /// No attempt begins after this.
    waits_until: Option<Instant>,
    /// Consecutive attempts that did not reach the provider.
    unreachable: u32,
    /// Attempts made, including the current one. An attempt that only had to wait does not count.
    made: u32,
    /// Whether an attempt hit a rate limit.
    rate_limited: bool,
}

impl<'a> RetryState<'a> {
    pub(super) fn start(policy: &'a Policy, time: TimeBudget) -> Self {
        let now = Instant::now();
        policy.budget.earn(now);
        policy.counters.calls.up();
        // An instant out of range is no limit.
        let after = |span: Option<Duration>| span.and_then(|span| now.checked_add(span));
        let (end, waits_until) = (after(time.deadline), after(time.max_wait));
        Self {
            policy,
            started: now,
            end,
            waits_until,
            unreachable: 0,
            made: 0,
            rate_limited: false,
        }
    }

    pub(super) const fn made(&self) -> u32 {
        self.made
    }

    /// Starts the next attempt.
    pub(super) fn attempt(&mut self) -> Attempt {
        self.made = self.made.saturating_add(1);
        self.policy.counters.attempts.up();
        let now = Instant::now();
        let max_wait = time_left(self.waits_until, now);
        Attempt { number: self.made, left: time_left(self.end, now), max_wait }
    }

    /// Records that the attempt succeeded.
    pub(super) fn succeeded(&self) {
        let retries = self.made.saturating_sub(1);
        if retries == 0 {
            return;
        }
        self.policy.counters.recovered(retries);
        self.policy.observers.get().recovered(&self.policy.provider, retries);
        let what = if self.rate_limited { "Rate limit" } else { "Call" };
        let function = &self.policy.function;
        if let Some(suppressed) = self.policy.next_log_line() {
            tracing::info!(
                suppressed,
                "{what} recovered after {retries} retries (function: {function})"
            );
        }
    }

    /// Records that the attempt failed. Returns the delay before the next attempt, or why there is
    /// none.
    pub(super) fn failed(&mut self, error: &impl Retryable) -> Result<Duration, Reason> {
        let Policy { counters, function, schedule, .. } = self.policy;
        if error.is_refusal() {
            self.made = self.made.saturating_sub(1);
        }
        let (made, total) = (self.made, schedule.attempts());
        if error.is_rate_limit() {
            counters.rate_limit_hits.up();
            self.rate_limited = true;
        }
        self.unreachable = if error.is_unreachable() { self.unreachable + 1 } else { 0 };
        let next = self.next(error);
        // What our own limits or circuit breaker refused says nothing about the provider.
        if !error.is_refusal() && !error.is_wait() {
            let observer = self.policy.observers.get();
            observer.failed(&self.policy.provider, error.class(), made, next.ok());
        }
        match next {
            Ok(delay) => {
                let what = if error.is_rate_limit() { "Rate limit hit" } else { "Call failed" };
                let seconds = delay.as_secs_f64();
                if let Some(suppressed) = self.policy.next_log_line() {
                    tracing::warn!(
                        suppressed,
                        "{what} (attempt {made}/{total}), backing off for {seconds:.3}s \
                         (function: {function}): {error}"
                    );
                }
                if self.is_free(error) {
                    self.made = made.saturating_sub(1);
                }
            }
            Err(reason) => {
                counters.gave_up(reason);
                // Invalid calls and calls that were never sent are for the caller to report.
                let is_logged = match reason {
                    Reason::NotRetryable => made > 1,
                    Reason::Refused => made > 0,
                    _ => true,
                };
                if let Some(suppressed) = is_logged.then(|| self.policy.next_log_line()).flatten() {
                    tracing::error!(
                        suppressed,
                        "Gave up (attempt {made}/{total}), {reason} (function: {function}): {error}"
                    );
                }
            }
        }
        next
    }

    /// Returns whether the attempt does not count because it only had to wait. Such waits are
    /// bounded by the call's maximum wait, or else by the sum of all delays of the schedule, after
    /// which they count as attempts.
    fn is_free(&self, error: &impl Retryable) -> bool {
        let is_bounded = self.waits_until.is_some();
        let is_early = || self.started.elapsed() < *self.policy.schedule.window().end();
        error.is_wait() && (is_bounded || is_early())
    }

    fn next(&self, error: &impl Retryable) -> Result<Duration, Reason> {
        let Policy { schedule, random, budget, max_server_delay, is_paced, .. } = self.policy;
        if error.is_refusal() {
            return Err(Reason::Refused);
        }
        if !error.is_retryable() {
            return Err(Reason::NotRetryable);
        }
        if self.made >= schedule.attempts() && !self.is_free(error) {
            return Err(Reason::NoAttemptsLeft);
        }
        if self.unreachable > UNREACHABLE_RETRIES {
            return Err(Reason::Unreachable);
        }
        let retry_after = error.retry_after();
        if retry_after.is_some_and(|retry_after| retry_after > *max_server_delay) {
            return Err(Reason::ServerDelayTooLong);
        }
        let (now, retry) = (Instant::now(), self.made.saturating_sub(1));
        let delay = schedule.delay(retry, retry_after, random);
        let delay = if self.unreachable > 0 { delay / 4 } else { delay };
        let delay = self.within_max_wait(delay, retry_after, now)?;
        // An attempt that starts at the deadline could not complete.
        if time_left(self.end, now).is_some_and(|left| delay >= left) {
            return Err(Reason::Deadline);
        }
        // The account holds back all its calls after a rate limit, so retries cause no storm. The
        // budget comes last, so that nothing is taken from it for a retry that is not made.
        let is_free = error.is_wait() || *is_paced && error.is_rate_limit();
        if is_free || budget.spend(now) { Ok(delay) } else { Err(Reason::Budget) }
    }

    /// Returns the delay if it ends within the call's maximum wait. A longer delay of our own is
    /// shortened, so that one more attempt is made in the time left.
    fn within_max_wait(
        &self,
        delay: Duration,
        retry_after: Option<Duration>,
        now: Instant,
    ) -> Result<Duration, Reason> {
        let Some(left) = time_left(self.waits_until, now) else { return Ok(delay) };
        if delay < left {
            return Ok(delay);
        }
        let shorter = left / 4 * 3;
        let is_worth_it = left >= self.policy.schedule.first_delay();
        if is_worth_it && retry_after.is_none_or(|retry_after| retry_after < shorter) {
            return Ok(shorter);
        }
        // The delay that the provider asked for may fit without the jitter.
        retry_after.filter(|retry_after| *retry_after < left).ok_or(Reason::Deadline)
    }
}

/// Returns the time left until an instant, if there is one.
fn time_left(end: Option<Instant>, now: Instant) -> Option<Duration> {
    end.map(|end| end.saturating_duration_since(now))
}
