//! One breaker with its slow mode: what it counts, and how many calls it lets through while what is
//! behind it recovers. Pure: time comes in as an argument.

use std::time::Duration;

use tidegate_core::Time;
use tidegate_core::breaker::{
    BreakerSettings, BreakerState, CallOutcome, CircuitBreaker, Epoch, Transition,
};

/// When to come back while a trial is under way.
const TRIAL_RETRY_AFTER: Duration = Duration::from_secs(1);
/// When to come back while as many calls are under way as slow mode lets through.
const SLOW_START_RETRY_AFTER: Duration = Duration::from_millis(250);
/// Slow mode ends after so many answers, the trial's included. Until then so many calls are under way
/// at most: two, and twice as many after each answer.
const SLOW_START_RESPONSES: u32 = 5;

/// A breaker that counts calls and recovers slowly.
#[derive(Debug)]
pub(super) struct Gate {
    breaker: CircuitBreaker,
    /// Calls that failed in a row. However often a call is retried, it is one.
    consecutive_failures: Vec<u64>,
    /// When the last of them was counted.
    last_counted: Option<Time>,
    slow_start: Option<SlowStart>,
}

/// Slow mode.
#[derive(Clone, Copy, Debug)]
struct SlowStart {
    responses: u32,
    in_flight: u32,
}

/// A call that was let through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    epoch: Epoch,
    /// Whether slow mode counts it.
    pub(super) is_slow_start: bool,
    pub(super) is_trial: bool,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedCall {
    pub(super) call: u64,
    pub(super) started_at: Time,
    pub(super) outcome: CallOutcome,
    /// Whether the failure is an overload: calls that were sent together are refused together, and
    /// say no more than one of them does.
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

    /// Whether calls go through. Slow mode is half-open.
    pub(super) fn state(&self, now: Time) -> BreakerState {
        match self.breaker.state(now) {
            BreakerState::Closed if self.slow_start.is_some() => BreakerState::HalfOpen,
            state => state,
        }
    }

    /// How long it stays open.
    pub(super) fn open_for(&self, now: Time) -> Option<Duration> {
        self.breaker.due().map(|due| due.since(now))
    }

    /// For how long a trial has been due that nobody has begun.
    pub(super) fn trial_due(&self, now: Time) -> Option<Duration> {
        let due = self.breaker.due().filter(|due| !self.breaker.is_tried() && *due <= now)?;
        Some(now.since(due))
    }

    /// Whether there is nothing to remember.
    pub(super) const fn is_clean(&self) -> bool {
        self.breaker.closed().is_some()
            && self.consecutive_failures.is_empty()
            && self.slow_start.is_none()
    }

    /// Whether a newcomer is worth an attempt: not while it is open or tried out. In slow mode
    /// newcomers may wait for their turn.
    pub(super) fn check(&self, now: Time) -> Result<(), Duration> {
        match self.breaker.state(now) {
            BreakerState::Closed => Ok(()),
            BreakerState::Open => Err(self.open_for(now).unwrap_or_default()),
            // The first one after the pause is the trial.
            _ if !self.breaker.is_tried() => Ok(()),
            _ => Err(TRIAL_RETRY_AFTER),
        }
    }

    /// Lets a call through, or says when to come back.
    pub(super) fn admit(&mut self, now: Time) -> Result<Admission, Duration> {
        let is_trial = self.breaker.closed().is_none();
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

    /// A call that was let through while there was no gate.
    pub(super) fn untracked_admission(&self) -> Option<Admission> {
        let epoch = self.breaker.closed().filter(|epoch| epoch.number() == 0)?;
        Some(Admission { epoch, is_slow_start: false, is_trial: false })
    }

    /// A call that was let through has ended. With enough failures in a row it opens, if `may_open`
    /// says that they are about what is behind this gate.
    pub(super) fn settle(
        &mut self,
        admission: Admission,
        ended: EndedCall,
        now: Time,
        (failures, may_open): (usize, bool),
    ) -> Option<Transition> {
        let Admission { epoch, is_slow_start, .. } = admission;
        if self.breaker.closed().is_none() {
            let change = self.breaker.settle(epoch, ended.outcome, now, 0);
            if let Some(Transition::Closed(_)) = change {
                self.consecutive_failures.clear();
                self.slow_start = Some(SlowStart { responses: 1, in_flight: 0 });
            }
            return change;
        }
        if self.breaker.closed() != Some(epoch) {
            return None;
        }
        if let Some(slow_start) = self.slow_start.as_mut().filter(|_| is_slow_start) {
            slow_start.in_flight = slow_start.in_flight.saturating_sub(1);
        }
        match ended.outcome {
            CallOutcome::Unknown => None,
            CallOutcome::Answered | CallOutcome::Rejected => {
                if ended.outcome == CallOutcome::Answered {
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
