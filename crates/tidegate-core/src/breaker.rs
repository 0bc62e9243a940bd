//! Circuit breaker as a pure state machine.
//!
//! Closed: every call is admitted; a number of consecutive failures opens the breaker. Open: no
//! call is admitted until a pause has passed. Half-open: one trial call is admitted; its success
//! closes the breaker, its failure opens it again for longer. A driver either uses callers as the
//! trial ([`CircuitBreaker::admit`]) or runs a prober of its own ([`CircuitBreaker::start_trial`]).
//!
//! The breaker reads no clock, draws no random numbers, takes no lock and starts no task; time and
//! jitter are arguments. An outcome counts only in the [`Epoch`] in which its call began, so a late
//! outcome of an old call does not affect the current state.

use core::time::Duration;

use crate::time::Time;

/// Wait reported while a trial is in flight, since its duration is unknown.
const RETRY_DURING_TRIAL: Duration = Duration::from_secs(1);
/// Number of doublings after which the pause stops growing, whatever its bound.
const MAX_DOUBLINGS: u32 = 31;

/// When a circuit breaker opens, and for how long.
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
    /// Opens after 5 consecutive failures, for 5 seconds, doubling up to 60 with every failed
    /// trial.
    fn default() -> Self {
        Self::after_failures(5)
    }
}

impl BreakerSettings {
    /// Opens after this many consecutive failures, at least one.
    #[must_use]
    pub const fn after_failures(failures: u32) -> Self {
        let failures = if failures == 0 { 1 } else { failures };
        let (shortest, longest) = (Duration::from_secs(5), Duration::from_secs(60));
        Self { failures, shortest, longest, relapse: Duration::ZERO }
    }

    /// Sets how long the breaker stays open: `shortest` at first, doubled after every failed trial,
    /// at most `longest`. Default: 5 and 60 seconds.
    #[must_use]
    pub const fn pause(mut self, shortest: Duration, longest: Duration) -> Self {
        (self.shortest, self.longest) = (shortest, longest);
        self
    }

    /// If the breaker opens again within this time after closing, the pause continues to double
    /// instead of starting from the shortest. Default: zero, so that it always starts from the
    /// shortest.
    #[must_use]
    pub const fn keep_backoff_within(mut self, span: Duration) -> Self {
        self.relapse = span;
        self
    }

    /// Returns the number of consecutive failures that open the breaker.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the pause after `doublings` doublings. `jitter` is any number and shortens the pause
    /// by up to a quarter, so that nodes that lost a server together do not all probe it together;
    /// zero does not shorten it.
    fn pause_after(&self, doublings: u32, jitter: u64) -> Duration {
        let factor = 1 << doublings.min(MAX_DOUBLINGS);
        let full = self.shortest.saturating_mul(factor).min(self.longest);
        let parts = u32::from(u16::MAX);
        let part = u32::try_from(jitter % u64::from(parts + 1)).unwrap_or(0);
        full - (full / 4).saturating_mul(part) / parts
    }
}

/// State of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerState {
    /// All calls are admitted.
    Closed,
    /// No call is admitted.
    Open,
    /// One trial call is in flight, or the next call will be the trial.
    HalfOpen,
}

/// Epoch in which a call began. Every state change starts a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u64);

impl Epoch {
    /// Returns the number of the epoch, for storing in an atomic.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Creates an epoch from its number.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// Outcome of a call, as evidence about the called service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The service works.
    Succeeded,
    /// The service responded but rejected this call. This ends a trial, but not a run of failures.
    Rejected,
    /// The service does not work.
    Failed,
    /// No evidence: the call was not made or was abandoned. The next call becomes the trial.
    Unknown,
}

/// A state change to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The breaker opened for this long.
    Opened(Duration),
    /// The breaker closed after having been open this long.
    Closed(Duration),
}

/// A circuit breaker; see the [module documentation](self).
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
/// let closed = breaker.settle(trial, CallOutcome::Succeeded, now.after(pause), 0);
/// assert_eq!(closed, Some(Transition::Closed(pause)));
/// ```
#[derive(Debug)]
pub struct CircuitBreaker {
    settings: BreakerSettings,
    state: InnerState,
    epoch: Epoch,
    /// When it last went from closed to open, or closed.
    changed_at: Option<Time>,
    /// How many times the pause has doubled.
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
    /// One trial is in flight. `until` is restored if its outcome is unknown.
    HalfOpen {
        until: Time,
    },
}

impl CircuitBreaker {
    /// Creates a closed breaker.
    #[must_use]
    pub const fn new(settings: BreakerSettings) -> Self {
        let state = InnerState::Closed { failures: 0 };
        Self { settings, state, epoch: Epoch(0), changed_at: None, doublings: 0 }
    }

    /// Applies new settings from the next failure on. A pause that has begun is not changed.
    pub const fn reconfigure(&mut self, settings: BreakerSettings) {
        self.settings = settings;
    }

    /// Returns the state at `now`.
    #[must_use]
    pub fn state(&self, now: Time) -> BreakerState {
        match self.state {
            InnerState::Closed { .. } => BreakerState::Closed,
            InnerState::Open { until } if until > now => BreakerState::Open,
            InnerState::Open { .. } | InnerState::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Returns the current epoch if the breaker is closed.
    #[must_use]
    pub const fn closed_epoch(&self) -> Option<Epoch> {
        match self.state {
            InnerState::Closed { .. } => Some(self.epoch),
            InnerState::Open { .. } | InnerState::HalfOpen { .. } => None,
        }
    }

    /// Returns whether a trial is in flight.
    #[must_use]
    pub const fn has_trial_in_flight(&self) -> bool {
        matches!(self.state, InnerState::HalfOpen { .. })
    }

    /// Returns the number of consecutive failures while closed.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        match self.state {
            InnerState::Closed { failures } => failures,
            InnerState::Open { .. } | InnerState::HalfOpen { .. } => 0,
        }
    }

    /// Returns when the next trial is due, or when the one in flight was; `None` while closed.
    #[must_use]
    pub const fn next_trial_at(&self) -> Option<Time> {
        match self.state {
            InnerState::Closed { .. } => None,
            InnerState::Open { until } | InnerState::HalfOpen { until } => Some(until),
        }
    }

    /// Admits a call or returns how long to wait. The first call after a pause is the trial.
    ///
    /// # Errors
    /// How long to wait, while the breaker is open or a trial is in flight.
    pub fn admit(&mut self, now: Time) -> Result<Epoch, Duration> {
        match self.state {
            InnerState::Closed { .. } => Ok(self.epoch),
            InnerState::Open { until } if until <= now => Ok(self.half_open(until)),
            InnerState::Open { until } => Err(until.since(now)),
            InnerState::HalfOpen { .. } => Err(RETRY_DURING_TRIAL),
        }
    }

    /// Starts a trial, for a prober that observes [`next_trial_at`](Self::next_trial_at) itself.
    /// Replaces a trial that is still in flight. Returns `None` if the breaker is closed.
    pub fn start_trial(&mut self) -> Option<Epoch> {
        self.next_trial_at().map(|until| self.half_open(until))
    }

    /// Records the outcome of an admitted call.
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
            (InnerState::Closed { .. }, CallOutcome::Succeeded) => {
                self.clear_failures();
                None
            }
            (InnerState::HalfOpen { .. }, CallOutcome::Failed) => {
                self.doublings = self.doublings.saturating_add(1);
                Some(self.open(now, jitter))
            }
            (InnerState::HalfOpen { .. }, CallOutcome::Succeeded | CallOutcome::Rejected) => {
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

    /// Resets the run of failures, as a success does in any epoch.
    pub fn clear_failures(&mut self) {
        if let InnerState::Closed { failures } = &mut self.state {
            *failures = 0;
        }
    }

    /// Opens the breaker at once, regardless of the number of failures, on stronger evidence. Does
    /// nothing unless the breaker is closed and still in `epoch`, in which the evidence was
    /// gathered.
    pub fn trip(&mut self, epoch: Epoch, now: Time, jitter: u64) -> Option<Transition> {
        if self.closed_epoch() != Some(epoch) {
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
