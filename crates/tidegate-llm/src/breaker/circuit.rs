//! A circuit shared by all calls of a scope.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::breaker::{
    BreakerSettings, BreakerState, CallOutcome, CircuitBreaker, Epoch, Transition,
};
use tidegate_providers::{Class, Provider};
use tokio::time::Instant;

use crate::call::{CallError, ConnectionFailure, LimitScope};
use crate::telemetry::Counter;

/// Time until a retry while a trial is in flight.
const TRIAL_RETRY_AFTER: Duration = Duration::from_secs(1);
/// A call that is dropped this long before its deadline still counts as timed out, since the
/// caller's timer started before ours.
const DEADLINE_TOLERANCE: Duration = Duration::from_millis(10);

/// Counts of a circuit.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Times it opened, by consecutive failures or a failed trial.
    pub(crate) opened: u64,
    /// Times it closed.
    pub(crate) closed: u64,
    /// Calls refused.
    pub(crate) refused: u64,
}

/// A circuit breaker shared by all callers of a scope. Clones share it.
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
    /// Creates the circuit of a provider. [`Breakers`](super::Breakers) keeps circuits by scope.
    #[cfg(test)]
    pub(crate) fn new(provider: impl Into<Provider>, settings: BreakerSettings) -> Self {
        let provider = provider.into();
        let name = provider.to_string();
        Self::named(provider, name, settings)
    }

    pub(super) fn for_scope(scope: &LimitScope, settings: BreakerSettings) -> Self {
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

    #[cfg(test)]
    pub(crate) fn state(&self) -> BreakerState {
        self.0.lock().state(super::now())
    }

    #[cfg(test)]
    pub(crate) fn stats(&self) -> Stats {
        let Inner { opened, closed, refused, .. } = &*self.0;
        Stats { opened: opened.read(), closed: closed.read(), refused: refused.read() }
    }

    /// Refuses a call that should not wait for a permit, because it could not be sent now. Admits
    /// nothing.
    pub(super) fn check(&self) -> Result<(), CallError> {
        let (machine, now) = (self.0.lock(), super::now());
        let after = match machine.state(now) {
            BreakerState::Open => {
                machine.next_trial_at().map_or(Duration::ZERO, |at| at.since(now))
            }
            _ if machine.has_trial_in_flight() => TRIAL_RETRY_AFTER,
            _ => return Ok(()),
        };
        drop(machine);
        Err(self.0.refusal(after))
    }

    /// Admits a call unless the circuit is open. `deadline` is the time the call may take, if
    /// limited.
    pub(super) fn admit(&self, deadline: Option<Duration>) -> Result<AdmittedCall, CallError> {
        let now = Instant::now();
        let admitted = self.0.lock().admit(super::now());
        match admitted {
            Ok(epoch) => {
                let end = deadline
                    .and_then(|span| now.checked_add(span.saturating_sub(DEADLINE_TOLERANCE)));
                Ok(AdmittedCall { circuit: self.0.clone(), epoch: Some(epoch), end })
            }
            Err(after) => Err(self.0.refusal(after)),
        }
    }
}

impl Inner {
    /// Counts a refused call and returns its error.
    fn refusal(&self, after: Duration) -> CallError {
        self.refused.up();
        CallError::CircuitOpen { provider: self.provider.clone(), after }
    }

    fn settle(&self, epoch: Epoch, outcome: CallOutcome, error: Option<&CallError>) {
        let transition = self.lock().settle(epoch, outcome, super::now(), 0);
        let scope = &*self.name;
        match (transition, error) {
            (Some(Transition::Opened(pause)), Some(error)) => {
                self.opened.up();
                let open_for_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(scope, open_for_ms, %error, "breaker opened");
            }
            (Some(Transition::Closed(_)), _) => {
                self.closed.up();
                tracing::info!(scope, "breaker closed");
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, CircuitBreaker> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that was admitted. Dropping it without an outcome before its deadline records nothing,
/// since its caller went away. Dropping it at the deadline records a timeout.
#[derive(Debug)]
pub(super) struct AdmittedCall {
    circuit: Arc<Inner>,
    epoch: Option<Epoch>,
    /// From this instant on, a call without a response has timed out.
    end: Option<Instant>,
}

impl AdmittedCall {
    pub(super) fn settle<T>(mut self, result: &Result<T, CallError>) {
        let error = result.as_ref().err();
        let outcome = error.map_or(CallOutcome::Succeeded, outcome_of);
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
        let (provider, kind) = (self.circuit.provider.clone(), ConnectionFailure::TimedOut);
        let late = CallError::Connection { provider, kind, source: None };
        self.circuit.settle(epoch, outcome_of(&late), Some(&late));
    }
}

/// Classifies an error for the breaker.
fn outcome_of(error: &CallError) -> CallOutcome {
    match error.class() {
        // Nothing was sent.
        _ if error.is_local() => CallOutcome::Unknown,
        Class::Transient | Class::Overloaded => CallOutcome::Failed,
        _ if error.failure().is_some() => CallOutcome::Rejected,
        _ => CallOutcome::Unknown,
    }
}
