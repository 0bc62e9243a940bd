//! A circuit breaker: whether something that fails is called, as a pure state machine.
//!
//! Closed, every call goes through, and so many failures in a row open it. Open, no call goes through
//! until a pause is over. Half-open, one trial goes through: its answer closes the breaker, its
//! failure opens it again for longer. Two kinds of drivers use it: one whose callers serve as the
//! trial ([`CircuitBreaker::admit`]), and one with a prober of its own ([`CircuitBreaker::trial`]).
//!
//! It reads no clock, draws no random number, takes no lock and starts nothing: time and jitter are
//! arguments. An outcome counts only in the [`Epoch`] in which its call began, so that a late answer
//! to an old call says nothing about the present state.

use core::time::Duration;

use crate::time::Time;

/// When to come back while a trial is under way, since nobody knows how long it takes.
const RETRY_DURING_TRIAL: Duration = Duration::from_secs(1);
/// Doublings after which a pause does not grow any more, whatever its bound.
const MAX_DOUBLINGS: u32 = 31;

/// What opens a circuit breaker, and for how long.
///
/// ```
/// use core::time::Duration;
/// use tidegate_core::breaker::BreakerSettings;
/// let settings = BreakerSettings::after_failures(3)
///     .pause(Duration::from_secs(1), Duration::from_secs(30));
/// # let _ = settings;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    failures: u32,
    shortest: Duration,
    longest: Duration,
    relapse: Duration,
}

impl Default for BreakerSettings {
    /// Five failures in a row; 5 seconds, doubling up to 60 with every trial that fails.
    fn default() -> Self {
        Self::after_failures(5)
    }
}

impl BreakerSettings {
    /// After so many failures in a row, one at least.
    #[must_use]
    pub const fn after_failures(failures: u32) -> Self {
        let failures = if failures == 0 { 1 } else { failures };
        let (shortest, longest) = (Duration::from_secs(5), Duration::from_secs(60));
        Self { failures, shortest, longest, relapse: Duration::ZERO }
    }

    /// How long it is open: `shortest` at first, twice as long after every trial that fails, never
    /// above `longest`. Default: 5 and 60 seconds.
    #[must_use]
    pub const fn pause(mut self, shortest: Duration, longest: Duration) -> Self {
        (self.shortest, self.longest) = (shortest, longest);
        self
    }

    /// A breaker that opens again within this time of closing had only seemed to be closed, and its
    /// pause goes on growing. Default: zero, and every pause begins with the shortest.
    #[must_use]
    pub const fn relapse_within(mut self, span: Duration) -> Self {
        self.relapse = span;
        self
    }

    /// How many failures in a row open it.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// The pause after so many doublings. `jitter` is any number, and takes up to a quarter off, so
    /// that nodes which lost something together do not all look for it together; zero takes nothing.
    fn pause_after(&self, doublings: u32, jitter: u64) -> Duration {
        let factor = 1 << doublings.min(MAX_DOUBLINGS);
        let full = self.shortest.saturating_mul(factor).min(self.longest);
        let parts = u32::from(u16::MAX);
        let part = u32::try_from(jitter % u64::from(parts + 1)).unwrap_or(0);
        full - (full / 4).saturating_mul(part) / parts
    }
}

/// Whether calls go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerState {
    /// All of them.
    Closed,
    /// None.
    Open,
    /// One trial, or there will be one as soon as there is a call.
    HalfOpen,
}

/// The epoch in which a call began: each change of state begins another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u64);

impl Epoch {
    /// Its number, to be kept in an atomic.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The epoch of a number.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// What a call says about what was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// It works.
    Answered,
    /// It is there, and does not want this call. That ends a trial, but not a row of failures.
    Rejected,
    /// It does not work.
    Failed,
    /// Nothing: it was not called, or the caller has gone. A trial is left to another call.
    Unknown,
}

/// A change that there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// It was opened, for this long.
    Opened(Duration),
    /// It was closed, after this long.
    Closed(Duration),
}

/// A circuit breaker. See the [module](self).
///
/// ```
/// use core::time::Duration;
/// use tidegate_core::Time;
/// use tidegate_core::breaker::{BreakerSettings, CallOutcome, CircuitBreaker, Transition};
/// let (mut breaker, now) = (CircuitBreaker::new(BreakerSettings::after_failures(1)), Time::ZERO);
/// let call = breaker.admit(now).unwrap();
/// let pause = Duration::from_secs(5);
/// let opened = breaker.settle(call, CallOutcome::Failed, now, 0);
/// assert_eq!(opened, Some(Transition::Opened(pause)));
/// assert_eq!(breaker.admit(now), Err(pause));
/// let trial = breaker.admit(now.after(pause)).unwrap();
/// let closed = breaker.settle(trial, CallOutcome::Answered, now.after(pause), 0);
/// assert_eq!(closed, Some(Transition::Closed(pause)));
/// ```
#[derive(Debug)]
pub struct CircuitBreaker {
    settings: BreakerSettings,
    state: InnerState,
    epoch: Epoch,
    /// When it was last opened from closed, or closed.
    changed_at: Option<Time>,
    /// How often the pause has doubled.
    doublings: u32,
}

#[derive(Clone, Copy, Debug)]
enum InnerState {
    Closed {
        failures: u32,
    },
    Open {
        until: Time,
    },
    /// One trial is under way. `until` is kept for the case that nothing comes of it.
    HalfOpen {
        until: Time,
    },
}

impl CircuitBreaker {
    /// A closed one.
    #[must_use]
    pub const fn new(settings: BreakerSettings) -> Self {
        let state = InnerState::Closed { failures: 0 };
        Self { settings, state, epoch: Epoch(0), changed_at: None, doublings: 0 }
    }

    /// Follows other settings from the next failure on. A pause that has begun stays as it is.
    pub const fn reconfigure(&mut self, settings: BreakerSettings) {
        self.settings = settings;
    }

    /// Whether calls go through.
    #[must_use]
    pub fn state(&self, now: Time) -> BreakerState {
        match self.state {
            InnerState::Closed { .. } => BreakerState::Closed,
            InnerState::Open { until } if until > now => BreakerState::Open,
            InnerState::Open { .. } | InnerState::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// The present epoch, if it is closed.
    #[must_use]
    pub const fn closed(&self) -> Option<Epoch> {
        match self.state {
            InnerState::Closed { .. } => Some(self.epoch),
            InnerState::Open { .. } | InnerState::HalfOpen { .. } => None,
        }
    }

    /// Whether a trial is under way.
    #[must_use]
    pub const fn is_tried(&self) -> bool {
        matches!(self.state, InnerState::HalfOpen { .. })
    }

    /// Failures in a row while it is closed.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        match self.state {
            InnerState::Closed { failures } => failures,
            InnerState::Open { .. } | InnerState::HalfOpen { .. } => 0,
        }
    }

    /// When the next trial is due, or the present one was; `None` while it is closed.
    #[must_use]
    pub const fn due(&self) -> Option<Time> {
        match self.state {
            InnerState::Closed { .. } => None,
            InnerState::Open { until } | InnerState::HalfOpen { until } => Some(until),
        }
    }

    /// Lets a call through, or says when to come back. The first call after a pause is the trial.
    ///
    /// # Errors
    /// How long to wait, while it is open or a trial is under way.
    pub fn admit(&mut self, now: Time) -> Result<Epoch, Duration> {
        match self.state {
            InnerState::Closed { .. } => Ok(self.epoch),
            InnerState::Open { until } if until <= now => Ok(self.half_open(until)),
            InnerState::Open { until } => Err(until.since(now)),
            InnerState::HalfOpen { .. } => Err(RETRY_DURING_TRIAL),
        }
    }

    /// Begins a trial for a prober that keeps to [`due`](Self::due) by itself. A trial that is still
    /// under way counts no more. `None` if there is nothing to try, since it is closed.
    pub fn trial(&mut self) -> Option<Epoch> {
        self.due().map(|until| self.half_open(until))
    }

    /// A call that was let through has ended.
    pub fn settle(
        &mut self,
        epoch: Epoch,
        outcome: CallOutcome,
        now: Time,
        jitter: u64,
    ) -> Option<Transition> {
        if epoch != self.epoch {
            return None;
        }
        match (self.state, outcome) {
            (InnerState::Closed { failures }, CallOutcome::Failed) => {
                let failures = failures.saturating_add(1);
                self.state = InnerState::Closed { failures };
                if failures < self.settings.failures { None } else { self.trip(epoch, now, jitter) }
            }
            (InnerState::Closed { .. }, CallOutcome::Answered) => {
                self.clear_failures();
                None
            }
            (InnerState::HalfOpen { .. }, CallOutcome::Failed) => {
                self.doublings = self.doublings.saturating_add(1);
                Some(self.open(now, jitter))
            }
            (InnerState::HalfOpen { .. }, CallOutcome::Answered | CallOutcome::Rejected) => {
                let opened = self.changed_at.replace(now);
                self.enter(InnerState::Closed { failures: 0 });
                let lasted = opened.map(|opened| now.since(opened));
                Some(Transition::Closed(lasted.unwrap_or_default()))
            }
            (InnerState::HalfOpen { until }, CallOutcome::Unknown) => {
                self.enter(InnerState::Open { until });
                None
            }
            (InnerState::Closed { .. }, CallOutcome::Rejected | CallOutcome::Unknown)
            | (InnerState::Open { .. }, _) => None,
        }
    }

    /// Ends a row of failures, as an answer does in whatever epoch its call began.
    pub fn clear_failures(&mut self) {
        if let InnerState::Closed { failures } = &mut self.state {
            *failures = 0;
        }
    }

    /// Opens it at once, whatever the number of failures: there is better evidence than those. It
    /// must be closed, and in the epoch in which the evidence was gathered.
    pub fn trip(&mut self, epoch: Epoch, now: Time, jitter: u64) -> Option<Transition> {
        if self.closed() != Some(epoch) {
            return None;
        }
        let relapse = self.settings.relapse;
        let closed_recently = |closed: Time| now.since(closed) < relapse;
        let relapsed = self.changed_at.is_some_and(closed_recently);
        self.doublings = if relapsed { self.doublings.saturating_add(1) } else { 0 };
        self.changed_at = Some(now);
        Some(self.open(now, jitter))
    }

    fn open(&mut self, now: Time, jitter: u64) -> Transition {
        let pause = self.settings.pause_after(self.doublings, jitter);
        self.enter(InnerState::Open { until: now.after(pause) });
        Transition::Opened(pause)
    }

    fn half_open(&mut self, until: Time) -> Epoch {
        self.enter(InnerState::HalfOpen { until });
        self.epoch
    }

    fn enter(&mut self, state: InnerState) {
        (self.state, self.epoch) = (state, Epoch(self.epoch.0.wrapping_add(1)));
    }
}

#[cfg(test)]
mod tests;
