//! A circuit that many calls share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_providers::Provider;
use tokio::time::Instant;

use super::phase::{News, Outcome, Phase, Phases, Turn};
use super::trip::Trip;
use crate::counter::Counter;
use crate::error::{Broken, CallError};
use crate::scope::Scope;

/// How much earlier than a deadline a call may be broken off at it: the clock of whoever does so was
/// started before ours.
const EARLY: Duration = Duration::from_millis(10);

/// Whether a provider is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It is.
    Closed,
    /// It is left alone.
    Open,
    /// One call is let through to see whether it is back, or will be as soon as there is one.
    HalfOpen,
}

/// What came of a circuit so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// How often it was opened, by failures in a row or by a probe that failed.
    pub opened: u64,
    /// How often it was closed again.
    pub closed: u64,
    /// Calls that were refused.
    pub refused: u64,
}

/// Whether a provider is called, as all its callers see it. Clones share it.
#[derive(Clone, Debug)]
pub struct Circuit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    provider: Provider,
    name: String,
    phases: Mutex<Phases>,
    opened: Counter,
    closed: Counter,
    refused: Counter,
}

impl Circuit {
    /// The circuit of a provider. For one that is found again by its scope, see
    /// [`Breakers`](super::Breakers).
    pub fn new(provider: impl Into<Provider>, trip: Trip) -> Self {
        let provider = provider.into();
        let name = provider.to_string();
        Self::named(provider, name, trip)
    }

    pub(super) fn of(scope: &Scope, trip: Trip) -> Self {
        Self::named(scope.provider().clone(), scope.to_string(), trip)
    }

    fn named(provider: Provider, name: String, trip: Trip) -> Self {
        Self(Arc::new(Inner {
            provider,
            name,
            phases: Mutex::new(Phases::new(trip)),
            opened: Counter::default(),
            closed: Counter::default(),
            refused: Counter::default(),
        }))
    }

    /// Whether the provider is called now.
    #[must_use]
    pub fn state(&self) -> State {
        match self.0.lock().phase() {
            Phase::Closed { .. } => State::Closed,
            Phase::Open { until } if until > Instant::now() => State::Open,
            Phase::Open { .. } | Phase::Probing { .. } => State::HalfOpen,
        }
    }

    /// What came of it so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Inner { opened, closed, refused, .. } = &*self.0;
        Stats { opened: opened.read(), closed: closed.read(), refused: refused.read() }
    }

    /// Lets a call through, if the provider is called now. It may take so long, if it says so.
    pub(super) fn admit(&self, deadline: Option<Duration>) -> Result<Pass, CallError> {
        let now = Instant::now();
        let admitted = self.0.lock().admit(now);
        match admitted {
            Ok(turn) => {
                let end = deadline.and_then(|span| now.checked_add(span.saturating_sub(EARLY)));
                Ok(Pass { circuit: self.0.clone(), turn: Some(turn), end })
            }
            Err(after) => {
                self.0.refused.up();
                Err(CallError::Open { provider: self.0.provider.clone(), after })
            }
        }
    }
}

impl Inner {
    fn settle(&self, turn: Turn, outcome: Outcome, error: Option<&CallError>) {
        let news = self.lock().settle(turn, outcome, Instant::now());
        let name = &self.name;
        match (news, error) {
            (Some(News::Opened(pause)), Some(error)) => {
                self.opened.up();
                let seconds = pause.as_secs_f64();
                tracing::warn!("{name} keeps failing and is left alone for {seconds:.1}s: {error}");
            }
            (Some(News::Closed), _) => {
                self.closed.up();
                tracing::info!("{name} answers again");
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Phases> {
        self.phases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that was let through. Dropped without an outcome before its deadline, it leaves its place
/// to another: its caller has gone. Dropped at the deadline, it was not answered in time.
#[derive(Debug)]
pub(super) struct Pass {
    circuit: Arc<Inner>,
    turn: Option<Turn>,
    /// From when on a call that has no answer was given enough time.
    end: Option<Instant>,
}

impl Pass {
    pub(super) fn settle<T>(mut self, result: &Result<T, CallError>) {
        let error = result.as_ref().err();
        let outcome = error.map_or(Outcome::Answered, Outcome::of);
        if let Some(turn) = self.turn.take() {
            self.circuit.settle(turn, outcome, error);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        if self.end.is_none_or(|end| Instant::now() < end) {
            self.circuit.settle(turn, Outcome::Nothing, None);
            return;
        }
        let (provider, broken) = (self.circuit.provider.clone(), Broken::TimedOut);
        let late = CallError::Connection { provider, broken, source: None };
        self.circuit.settle(turn, Outcome::of(&late), Some(&late));
    }
}
