//! Closed, open, probing: which it is, and what changes it.
//!
//! It reads no clock and logs nothing.

use std::time::Duration;

use tidegate_providers::Class;
use tokio::time::Instant;

use super::trip::Trip;
use crate::error::CallError;

/// When to come back while a probe is under way: nobody knows how long that takes.
const WHILE_PROBING: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Phases {
    trip: Trip,
    phase: Phase,
    /// Changes with the phase.
    turn: Turn,
    /// Probes in a row that failed.
    failed_probes: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// One call is let through. `until` has passed, and is kept for the case that it is dropped.
    Probing {
        until: Instant,
    },
}

/// In which turn a call began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn(u64);

/// What a call tells about its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It works.
    Answered,
    /// It is there, and does not want this call.
    Refused,
    /// It does not work.
    Failed,
    /// Nothing: it was not asked.
    Nothing,
}

/// What there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Opened(Duration),
    Closed,
}

impl Outcome {
    pub(super) fn of(error: &CallError) -> Self {
        match error.class() {
            Class::Transient | Class::Overloaded => Self::Failed,
            _ if error.failure().is_some() => Self::Refused,
            _ => Self::Nothing,
        }
    }
}

impl Phases {
    pub(super) const fn new(trip: Trip) -> Self {
        Self { trip, phase: Phase::Closed { failures: 0 }, turn: Turn(0), failed_probes: 0 }
    }

    pub(super) const fn phase(&self) -> Phase {
        self.phase
    }

    /// Lets a call through, or says when to come back.
    pub(super) fn admit(&mut self, now: Instant) -> Result<Turn, Duration> {
        match self.phase {
            Phase::Closed { .. } => Ok(self.turn),
            Phase::Open { until } if until <= now => {
                self.enter(Phase::Probing { until });
                Ok(self.turn)
            }
            Phase::Open { until } => Err(until.saturating_duration_since(now)),
            Phase::Probing { .. } => Err(WHILE_PROBING),
        }
    }

    /// A call that was let through has ended.
    pub(super) fn settle(&mut self, turn: Turn, outcome: Outcome, now: Instant) -> Option<News> {
        if turn != self.turn {
            return None;
        }
        match (self.phase, outcome) {
            (Phase::Closed { failures }, Outcome::Failed) => {
                let failures = failures.saturating_add(1);
                self.phase = Phase::Closed { failures };
                (failures >= self.trip.failures()).then(|| self.open(now))
            }
            (Phase::Closed { .. }, Outcome::Answered) => {
                self.phase = Phase::Closed { failures: 0 };
                None
            }
            (Phase::Probing { .. }, Outcome::Failed) => {
                self.failed_probes = self.failed_probes.saturating_add(1);
                Some(self.open(now))
            }
            (Phase::Probing { .. }, Outcome::Answered | Outcome::Refused) => {
                self.failed_probes = 0;
                self.enter(Phase::Closed { failures: 0 });
                Some(News::Closed)
            }
            (Phase::Probing { until }, Outcome::Nothing) => {
                self.enter(Phase::Open { until });
                None
            }
            (Phase::Closed { .. }, Outcome::Refused | Outcome::Nothing)
            | (Phase::Open { .. }, _) => None,
        }
    }

    fn open(&mut self, now: Instant) -> News {
        let pause = self.trip.pause(self.failed_probes);
        // A pause beyond the end of time is no pause that anybody meant.
        self.enter(Phase::Open { until: now.checked_add(pause).unwrap_or(now) });
        News::Opened(pause)
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.turn) = (phase, Turn(self.turn.0.wrapping_add(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn open(now: Instant) -> Phases {
        let mut phases = Phases::new(Trip::default());
        let turn = phases.admit(now).unwrap();
        let news = [(); 5].map(|()| phases.settle(turn, Outcome::Failed, now));
        assert_eq!(news, [None, None, None, None, Some(News::Opened(SECOND * 5))]);
        phases
    }

    #[test]
    fn only_failures_in_a_row_open_it() {
        let (mut phases, now) = (Phases::new(Trip::default()), Instant::now());
        let turn = phases.admit(now).unwrap();
        for _ in 0..10 {
            for _ in 0..4 {
                assert_eq!(phases.settle(turn, Outcome::Failed, now), None);
            }
            assert_eq!(phases.settle(turn, Outcome::Answered, now), None);
        }
        for outcome in [Outcome::Refused, Outcome::Nothing] {
            assert!((0..100).all(|_| phases.settle(turn, outcome, now).is_none()));
        }
        assert!(phases.admit(now).is_ok());
    }

    #[test]
    fn pauses_double_up_to_a_minute_and_begin_anew_after_an_answer() {
        let mut now = Instant::now();
        let mut phases = open(now);
        for (waited, next) in [(5, 10), (10, 20), (20, 40), (40, 60), (60, 60)] {
            now += SECOND * waited;
            assert_eq!(phases.admit(now - SECOND), Err(SECOND));
            let probe = phases.admit(now).unwrap();
            assert_eq!(phases.admit(now), Err(WHILE_PROBING), "one probe at a time");
            let news = phases.settle(probe, Outcome::Failed, now);
            assert_eq!(news, Some(News::Opened(SECOND * next)));
        }
        now += SECOND * 60;
        let probe = phases.admit(now).unwrap();
        assert_eq!(phases.settle(probe, Outcome::Refused, now), Some(News::Closed));
        let turn = phases.admit(now).unwrap();
        let news = [(); 5].map(|()| phases.settle(turn, Outcome::Failed, now));
        assert_eq!(news[4], Some(News::Opened(SECOND * 5)));
    }

    #[test]
    fn a_call_from_before_changes_nothing() {
        let now = Instant::now();
        let mut phases = Phases::new(Trip::after_failures(1));
        let old = phases.admit(now).unwrap();
        assert!(phases.settle(old, Outcome::Failed, now).is_some());
        assert_eq!(phases.settle(old, Outcome::Answered, now), None);
        assert_eq!(phases.admit(now), Err(SECOND * 5));
        let probe = phases.admit(now + SECOND * 5).unwrap();
        assert_eq!(phases.settle(old, Outcome::Failed, now), None);
        assert_eq!(phases.settle(probe, Outcome::Answered, now), Some(News::Closed));
        assert_eq!(phases.settle(old, Outcome::Failed, now), None);
        assert!(phases.admit(now).is_ok());
    }

    #[test]
    fn a_probe_that_proves_nothing_leaves_its_place_to_another() {
        let now = Instant::now();
        let (mut phases, later) = (open(now), now + SECOND * 5);
        let first = phases.admit(later).unwrap();
        assert_eq!(phases.settle(first, Outcome::Nothing, later), None);
        let second = phases.admit(later).unwrap();
        assert_eq!(phases.settle(first, Outcome::Failed, later), None, "it had its turn");
        assert_eq!(phases.settle(second, Outcome::Answered, later), Some(News::Closed));
    }
}
