//! A circuit that many calls share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(test)]
use tidegate_core::breaker::BreakerState;
use tidegate_core::breaker::{BreakerSettings, CallOutcome, CircuitBreaker, Epoch, Transition};
use tidegate_providers::{Class, Provider};
use tokio::time::Instant;

use crate::call::{Broken, CallError, Scope};
use crate::telemetry::Counter;

/// How much earlier than a deadline a call may be broken off at it: the clock of whoever does so was
/// started before ours.
const DEADLINE_TOLERANCE: Duration = Duration::from_millis(10);

/// What came of a circuit so far.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// How often it was opened, by failures in a row or by a trial that failed.
    pub(crate) opened: u64,
    /// How often it was closed again.
    pub(crate) closed: u64,
    /// Calls that were refused.
    pub(crate) refused: u64,
}

/// Whether a provider is called, as all its callers see it. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Circuit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    provider: Provider,
    name: String,
    machine: Mutex<CircuitBreaker>,
    opened: Counter,
    closed: Counter,
    refused: Counter,
}

impl Circuit {
    /// The circuit of a provider. For one that is found again by its scope, see
    /// [`Breakers`](super::Breakers).
    #[cfg(test)]
    pub(crate) fn new(provider: impl Into<Provider>, settings: BreakerSettings) -> Self {
        let provider = provider.into();
        let name = provider.to_string();
        Self::named(provider, name, settings)
    }

    pub(super) fn for_scope(scope: &Scope, settings: BreakerSettings) -> Self {
        Self::named(scope.provider().clone(), scope.to_string(), settings)
    }

    fn named(provider: Provider, name: String, settings: BreakerSettings) -> Self {
        Self(Arc::new(Inner {
            provider,
            name,
            machine: Mutex::new(CircuitBreaker::new(settings)),
            opened: Counter::default(),
            closed: Counter::default(),
            refused: Counter::default(),
        }))
    }

    /// Whether the provider is called now.
    #[cfg(test)]
    pub(crate) fn state(&self) -> BreakerState {
        self.0.lock().state(super::now())
    }

    /// What came of it so far.
    #[cfg(test)]
    pub(crate) fn stats(&self) -> Stats {
        let Inner { opened, closed, refused, .. } = &*self.0;
        Stats { opened: opened.read(), closed: closed.read(), refused: refused.read() }
    }

    /// Lets a call through, if the provider is called now. It may take so long, if it says so.
    pub(super) fn admit(&self, deadline: Option<Duration>) -> Result<AdmittedCall, CallError> {
        let now = Instant::now();
        let admitted = self.0.lock().admit(super::now());
        match admitted {
            Ok(epoch) => {
                let end = deadline
                    .and_then(|span| now.checked_add(span.saturating_sub(DEADLINE_TOLERANCE)));
                Ok(AdmittedCall { circuit: self.0.clone(), epoch: Some(epoch), end })
            }
            Err(after) => {
                self.0.refused.up();
                Err(CallError::Open { provider: self.0.provider.clone(), after })
            }
        }
    }
}

impl Inner {
    fn settle(&self, epoch: Epoch, outcome: CallOutcome, error: Option<&CallError>) {
        let transition = self.lock().settle(epoch, outcome, super::now(), 0);
        let name = &self.name;
        match (transition, error) {
            (Some(Transition::Opened(pause)), Some(error)) => {
                self.opened.up();
                let seconds = pause.as_secs_f64();
                tracing::warn!("{name} keeps failing and is left alone for {seconds:.1}s: {error}");
            }
            (Some(Transition::Closed(_)), _) => {
                self.closed.up();
                tracing::info!("{name} answers again");
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, CircuitBreaker> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that was let through. Dropped without an outcome before its deadline, it leaves its place
/// to another: its caller has gone. Dropped at the deadline, it was not answered in time.
#[derive(Debug)]
pub(super) struct AdmittedCall {
    circuit: Arc<Inner>,
    epoch: Option<Epoch>,
    /// From when on a call that has no answer was given enough time.
    end: Option<Instant>,
}

impl AdmittedCall {
    pub(super) fn settle<T>(mut self, result: &Result<T, CallError>) {
        let error = result.as_ref().err();
        let outcome = error.map_or(CallOutcome::Answered, outcome_of);
        if let Some(epoch) = self.epoch.take() {
            self.circuit.settle(epoch, outcome, error);
        }
    }
}

impl Drop for AdmittedCall {
    fn drop(&mut self) {
        let Some(epoch) = self.epoch.take() else { return };
        if self.end.is_none_or(|end| Instant::now() < end) {
            self.circuit.settle(epoch, CallOutcome::Unknown, None);
            return;
        }
        let (provider, broken) = (self.circuit.provider.clone(), Broken::TimedOut);
        let late = CallError::Connection { provider, broken, source: None };
        self.circuit.settle(epoch, outcome_of(&late), Some(&late));
    }
}

/// What an error says about its provider.
fn outcome_of(error: &CallError) -> CallOutcome {
    match error.class() {
        Class::Transient | Class::Overloaded => CallOutcome::Failed,
        _ if error.failure().is_some() => CallOutcome::Rejected,
        _ => CallOutcome::Unknown,
    }
}
