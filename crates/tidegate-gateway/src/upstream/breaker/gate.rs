//! One circuit breaker with slow start: what it counts, and how many calls it admits during
//! recovery. Pure: time is an argument.

use std::time::Duration;

use tidegate_core::Time;
use tidegate_core::breaker::{
    BreakerSettings, BreakerState, CallOutcome, CircuitBreaker, Epoch, Transition,
};

/// Retry time while a trial is in flight.
const TRIAL_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Retry time while slow start admits no more calls.
const SLOW_START_RETRY_AFTER: Duration = Duration::from_millis(250);
/// Slow start ends after this many responses, including the trial's. Until then the limit of calls
/// in flight is two, doubled after each response.
const SLOW_START_RESPONSES: u32 = 5;

/// A circuit breaker with slow start.
#[derive(Debug)]
pub(super) struct Gate {
    breaker: CircuitBreaker,
    /// Consecutive failed calls. A retried call is listed once.
    consecutive_failures: Vec<u64>,
    /// When the last failure was counted.
    last_counted: Option<Time>,
    slow_start: Option<SlowStart>,
}

/// State of slow start.
#[derive(Clone, Copy, Debug)]
struct SlowStart {
    responses: u32,
    in_flight: u32,
}

/// An admitted call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    epoch: Epoch,
    /// Whether it counts for slow start.
    pub(super) is_slow_start: bool,
    pub(super) is_trial: bool,
}

/// A finished call.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedCall {
    pub(super) call: u64,
    pub(super) started_at: Time,
    pub(super) outcome: CallOutcome,
    /// Whether the failure is an overload. Calls sent together are refused together, which counts
    /// as one failure.
    pub(super) is_overload: bool,
}

impl Gate {
    pub(super) const fn new(settings: BreakerSettings) -> Self {
        let breaker = CircuitBreaker::new(settings);
        Self { breaker, consecutive_failures: Vec::new(), last_counted: None, slow_start: None }
    }

    pub(super) const fn reconfigure(&mut self, settings: BreakerSettings) {
        self.breaker.reconfigure(settings);
    }

    /// Returns the state. Slow start is reported as half-open.
    pub(super) fn state(&self, now: Time) -> BreakerState {
        match self.breaker.state(now) {
            BreakerState::Closed if self.slow_start.is_some() => BreakerState::HalfOpen,
            state => state,
        }
    }

    /// Returns how long the gate stays open.
    pub(super) fn open_for(&self, now: Time) -> Option<Duration> {
        self.breaker.next_trial_at().map(|due| due.since(now))
    }

    /// Returns for how long a trial has been due without being started.
    pub(super) fn trial_due(&self, now: Time) -> Option<Duration> {
        let due = self
            .breaker
            .next_trial_at()
            .filter(|due| !self.breaker.has_trial_in_flight() && *due <= now)?;
        Some(now.since(due))
    }

    /// Whether the gate holds no state worth keeping.
    pub(super) const fn is_clean(&self) -> bool {
        self.breaker.closed_epoch().is_some()
            && self.consecutive_failures.is_empty()
            && self.slow_start.is_none()
    }

    /// Checks whether a new call should queue: not while the gate is open or a trial is in flight.
    /// During slow start it may queue.
    pub(super) fn check(&self, now: Time) -> Result<(), Duration> {
        match self.breaker.state(now) {
            BreakerState::Closed => Ok(()),
            BreakerState::Open => Err(self.open_for(now).unwrap_or_default()),
            // The first call after the pause is the trial.
            _ if !self.breaker.has_trial_in_flight() => Ok(()),
            _ => Err(TRIAL_RETRY_AFTER),
        }
    }

    /// Admits a call, or returns when to retry.
    pub(super) fn admit(&mut self, now: Time) -> Result<Admission, Duration> {
        let is_trial = self.breaker.closed_epoch().is_none();
        let Some(slow_start) = &mut self.slow_start else {
            let epoch = self.breaker.admit(now)?;
            return Ok(Admission { epoch, is_slow_start: false, is_trial });
        };
        if slow_start.in_flight >= 1 << slow_start.responses.min(SLOW_START_RESPONSES) {
            return Err(SLOW_START_RETRY_AFTER);
        }
        let epoch = self.breaker.admit(now)?;
        slow_start.in_flight += 1;
        Ok(Admission { epoch, is_slow_start: true, is_trial })
    }

    /// Returns the admission of a call that was admitted before this gate existed.
    pub(super) fn untracked_admission(&self) -> Option<Admission> {
        let epoch = self.breaker.closed_epoch().filter(|epoch| epoch.number() == 0)?;
        Some(Admission { epoch, is_slow_start: false, is_trial: false })
    }

    /// Records the end of an admitted call. Enough consecutive failures open the gate, if
    /// `may_open` says that they concern what it guards.
    pub(super) fn settle(
        &mut self,
        admission: Admission,
        ended: EndedCall,
        now: Time,
        (failures, may_open): (usize, bool),
    ) -> Option<Transition> {
        let Admission { epoch, is_slow_start, .. } = admission;
        if self.breaker.closed_epoch().is_none() {
            let change = self.breaker.settle(epoch, ended.outcome, now, 0);
            if let Some(Transition::Closed(_)) = change {
                self.consecutive_failures.clear();
                self.slow_start = Some(SlowStart { responses: 1, in_flight: 0 });
            }
            return change;
        }
        if self.breaker.closed_epoch() != Some(epoch) {
            return None;
        }
        if let Some(slow_start) = self.slow_start.as_mut().filter(|_| is_slow_start) {
            slow_start.in_flight = slow_start.in_flight.saturating_sub(1);
        }
        match ended.outcome {
            CallOutcome::Unknown => None,
            CallOutcome::Succeeded | CallOutcome::Rejected => {
                if ended.outcome == CallOutcome::Succeeded {
                    self.consecutive_failures.clear();
                }
                if let Some(slow_start) = &mut self.slow_start {
                    slow_start.responses += 1;
                }
                self.slow_start = self.slow_start.filter(|it| it.responses < SLOW_START_RESPONSES);
                None
            }
            CallOutcome::Failed if self.slow_start.take().is_some() => self.open(epoch, now),
            CallOutcome::Failed => {
                self.count(ended, now, failures);
                if self.consecutive_failures.len() >= failures && may_open {
                    self.open(epoch, now)
                } else {
                    None
                }
            }
        }
    }

    fn count(&mut self, ended: EndedCall, now: Time, max_failures: usize) {
        let started_before_last =
            self.last_counted.is_some_and(|counted| ended.started_at < counted);
        let is_duplicate =
            ended.is_overload && started_before_last && !self.consecutive_failures.is_empty();
        if !is_duplicate
            && self.consecutive_failures.len() < max_failures
            && !self.consecutive_failures.contains(&ended.call)
        {
            self.consecutive_failures.push(ended.call);
            self.last_counted = Some(now);
        }
    }

    fn open(&mut self, epoch: Epoch, now: Time) -> Option<Transition> {
        self.consecutive_failures.clear();
        self.breaker.trip(epoch, now, 0)
    }
}
