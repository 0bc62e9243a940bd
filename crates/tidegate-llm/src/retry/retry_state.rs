//! The attempts of one call: what to do after each, and what the log is retry_after.

use std::time::Duration;

use tokio::time::Instant;

use super::policy::Policy;
use super::run::{Attempt, Reason, Retryable, TimeBudget};

/// Retries of a call whose provider cannot be reached, after delays of a quarter of the schedule's:
/// a connection that was refused by chance is worth them, a provider that is away is not.
const UNREACHABLE_RETRIES: u32 = 2;

pub(super) struct RetryState<'a> {
    policy: &'a Policy,
    started: Instant,
    end: Option<Instant>,
    /// No attempt begins after this.
    waits_until: Option<Instant>,
    /// Attempts in a row that did not reach the provider.
    unreachable: u32,
    /// Attempts that were made, with the one under way. One that came to a wait does not count.
    made: u32,
    /// Whether one of them hit a rate limit.
    rate_limited: bool,
}

impl<'a> RetryState<'a> {
    pub(super) fn start(policy: &'a Policy, time: TimeBudget) -> Self {
        let now = Instant::now();
        policy.budget.earn(now);
        policy.counters.calls.up();
        // What ends after the end of time has no end.
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

    /// The next attempt.
    pub(super) fn attempt(&mut self) -> Attempt {
        self.made = self.made.saturating_add(1);
        self.policy.counters.attempts.up();
        let now = Instant::now();
        let max_wait = time_left(self.waits_until, now);
        Attempt { number: self.made, left: time_left(self.end, now), max_wait }
    }

    /// The attempt was answered.
    pub(super) fn succeeded(&self) {
        let retries = self.made.saturating_sub(1);
        if retries == 0 {
            return;
        }
        self.policy.counters.recovered(retries);
        self.policy.observer.recovered(&self.policy.provider, retries);
        let what = if self.rate_limited { "Rate limit" } else { "Call" };
        let function = &self.policy.function;
        if let Some(suppressed) = self.policy.next_log_line() {
            tracing::info!(
                suppressed,
                "{what} recovered after {retries} retries (function: {function})"
            );
        }
    }

    /// The attempt failed: how long to sleep before the next one, or why there is none.
    pub(super) fn failed(&mut self, error: &impl Retryable) -> Result<Duration, Reason> {
        let Policy { counters, function, schedule, .. } = self.policy;
        let (made, total) = (self.made, schedule.attempts());
        if error.is_rate_limit() {
            counters.rate_limit_hits.up();
            self.rate_limited = true;
        }
        self.unreachable = if error.is_unreachable() { self.unreachable + 1 } else { 0 };
        let next = self.next(error);
        self.policy.observer.failed(&self.policy.provider, error.class(), made, next.ok());
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
                // A call that is simply wrong, or that was never sent, is its caller's to tell.
                let is_logged =
                    made > 1 || !matches!(reason, Reason::NotRetryable | Reason::NotAdmitted);
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

    /// Whether the attempt came to nothing but a wait. Waits do not go on for ever: the call says how
    /// long it waits; else they are attempts like others after the time that all delays of the
    /// schedule take.
    fn is_free(&self, error: &impl Retryable) -> bool {
        let is_bounded = self.waits_until.is_some();
        let is_early = || self.started.elapsed() < *self.policy.schedule.window().end();
        error.is_wait() && (is_bounded || is_early())
    }

    fn next(&self, error: &impl Retryable) -> Result<Duration, Reason> {
        let Policy { schedule, random, budget, max_server_delay, is_paced, .. } = self.policy;
        if error.is_denial() {
            return Err(Reason::NotAdmitted);
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
        // An attempt at the very end of the time could not be answered any more.
        if time_left(self.end, now).is_some_and(|left| delay >= left) {
            return Err(Reason::Deadline);
        }
        // The account keeps a rate limit closed for all of its calls, so that retries of it are no
        // storm. Last, so that nothing is taken from the budget for a retry that is not made.
        let is_free = error.is_wait() || *is_paced && error.is_rate_limit();
        if is_free || budget.spend(now) { Ok(delay) } else { Err(Reason::Budget) }
    }

    /// The delay, if it is over before the call stops to wait. A delay of our own that is longer is
    /// shortened, so that one attempt more is made in the time that is left.
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
        // A delay that was asked for fits, but for what is added to it by chance.
        retry_after.filter(|retry_after| *retry_after < left).ok_or(Reason::Deadline)
    }
}

/// What is left until an instant, if there is one.
fn time_left(end: Option<Instant>, now: Instant) -> Option<Duration> {
    end.map(|end| end.saturating_duration_since(now))
}
