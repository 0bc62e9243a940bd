//! One breaker with its slow mode: what it counts, and how many calls it lets through while what is
//! behind it recovers. Pure: time comes in as an argument.

use std::time::Duration;

use tidegate_core::Time;
use tidegate_core::breaker::{
    BreakerSettings, BreakerState, CallOutcome, CircuitBreaker, Epoch, Transition,
};

/// When to come back while a trial is under way.
const DURING_TRIAL: Duration = Duration::from_secs(1);
/// When to come back while as many calls are under way as slow mode lets through.
const SLOW: Duration = Duration::from_millis(250);
/// Slow mode ends after so many answers, the trial's included. Until then so many calls are under way
/// at most: two, and twice as many after each answer.
const RECOVERED: u32 = 5;

/// A breaker that counts calls and recovers slowly.
#[derive(Debug)]
pub(super) struct Gate {
    machine: CircuitBreaker,
    /// Calls that failed in a row. However often a call is retried, it is one.
    row: Vec<u64>,
    /// When the last of them was counted.
    counted: Option<Time>,
    recovery: Option<Recovery>,
}

/// Slow mode.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    answered: u32,
    under_way: u32,
}

/// A call that was let through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admitted {
    epoch: Epoch,
    /// Whether slow mode counts it.
    pub(super) is_slow: bool,
    pub(super) is_trial: bool,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) call: u64,
    pub(super) began: Time,
    pub(super) outcome: CallOutcome,
    /// Whether the failure is an overload: calls that were sent together are refused together, and
    /// say no more than one of them does.
    pub(super) is_overload: bool,
}

impl Gate {
    pub(super) const fn new(settings: BreakerSettings) -> Self {
        let machine = CircuitBreaker::new(settings);
        Self { machine, row: Vec::new(), counted: None, recovery: None }
    }

    pub(super) const fn reconfigure(&mut self, settings: BreakerSettings) {
        self.machine.reconfigure(settings);
    }

    /// Whether calls go through. Slow mode is half-open.
    pub(super) fn state(&self, now: Time) -> BreakerState {
        match self.machine.state(now) {
            BreakerState::Closed if self.recovery.is_some() => BreakerState::HalfOpen,
            state => state,
        }
    }

    /// How long it stays open.
    pub(super) fn open_for(&self, now: Time) -> Option<Duration> {
        self.machine.due().map(|due| due.since(now))
    }

    /// For how long a trial has been due that nobody has begun.
    pub(super) fn trial_due(&self, now: Time) -> Option<Duration> {
        let due = self.machine.due().filter(|due| !self.machine.is_tried() && *due <= now)?;
        Some(now.since(due))
    }

    /// Whether there is nothing to remember.
    pub(super) const fn is_clean(&self) -> bool {
        self.machine.closed().is_some() && self.row.is_empty() && self.recovery.is_none()
    }

    /// Whether a newcomer is worth an attempt: not while it is open or tried out. In slow mode
    /// newcomers may wait for their turn.
    pub(super) fn check(&self, now: Time) -> Result<(), Duration> {
        match self.machine.state(now) {
            BreakerState::Closed => Ok(()),
            BreakerState::Open => Err(self.open_for(now).unwrap_or_default()),
            // The first one after the pause is the trial.
            _ if !self.machine.is_tried() => Ok(()),
            _ => Err(DURING_TRIAL),
        }
    }

    /// Lets a call through, or says when to come back.
    pub(super) fn admit(&mut self, now: Time) -> Result<Admitted, Duration> {
        let is_trial = self.machine.closed().is_none();
        let Some(recovery) = &mut self.recovery else {
            let epoch = self.machine.admit(now)?;
            return Ok(Admitted { epoch, is_slow: false, is_trial });
        };
        if recovery.under_way >= 1 << recovery.answered.min(RECOVERED) {
            return Err(SLOW);
        }
        let epoch = self.machine.admit(now)?;
        recovery.under_way += 1;
        Ok(Admitted { epoch, is_slow: true, is_trial })
    }

    /// A call that was let through while there was no gate.
    pub(super) fn first(&self) -> Option<Admitted> {
        let epoch = self.machine.closed().filter(|epoch| epoch.number() == 0)?;
        Some(Admitted { epoch, is_slow: false, is_trial: false })
    }

    /// A call that was let through has ended. With enough failures in a row it opens, if `may_open`
    /// says that they are about what is behind this gate.
    pub(super) fn settle(
        &mut self,
        admitted: Admitted,
        ended: Ended,
        now: Time,
        (failures, may_open): (usize, bool),
    ) -> Option<Transition> {
        let Admitted { epoch, is_slow, .. } = admitted;
        if self.machine.closed().is_none() {
            let change = self.machine.settle(epoch, ended.outcome, now, 0);
            if let Some(Transition::Closed(_)) = change {
                self.row.clear();
                self.recovery = Some(Recovery { answered: 1, under_way: 0 });
            }
            return change;
        }
        if self.machine.closed() != Some(epoch) {
            return None;
        }
        if let Some(recovery) = self.recovery.as_mut().filter(|_| is_slow) {
            recovery.under_way = recovery.under_way.saturating_sub(1);
        }
        match ended.outcome {
            CallOutcome::Unknown => None,
            CallOutcome::Answered | CallOutcome::Rejected => {
                if ended.outcome == CallOutcome::Answered {
                    self.row.clear();
                }
                if let Some(recovery) = &mut self.recovery {
                    recovery.answered += 1;
                }
                self.recovery = self.recovery.filter(|it| it.answered < RECOVERED);
                None
            }
            CallOutcome::Failed if self.recovery.take().is_some() => self.open(epoch, now),
            CallOutcome::Failed => {
                self.count(ended, now, failures);
                if self.row.len() >= failures && may_open { self.open(epoch, now) } else { None }
            }
        }
    }

    fn count(&mut self, ended: Ended, now: Time, most: usize) {
        let is_same = self.counted.is_some_and(|counted| ended.began < counted);
        let is_known = ended.is_overload && is_same && !self.row.is_empty();
        if !is_known && self.row.len() < most && !self.row.contains(&ended.call) {
            self.row.push(ended.call);
            self.counted = Some(now);
        }
    }

    fn open(&mut self, epoch: Epoch, now: Time) -> Option<Transition> {
        self.row.clear();
        self.machine.trip(epoch, now, 0)
    }
}
