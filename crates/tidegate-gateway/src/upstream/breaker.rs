//! The circuit breaker of a provider, over all models and keys.
//!
//! There is one gate for the provider, and one for each combination of model and key that failed
//! recently. A failing model at a working provider, or a key with which every call fails, blocks
//! only itself: consecutive failures open the provider's gate only if they involve several models
//! or keys, or if no connection could be made, which no model or key can cause. Rejected keys, rate
//! limits and invalid requests are not failures.
//!
//! A call counts once among consecutive failures, however often it is retried: one request that a
//! provider cannot handle must not block all others. A recovering provider gets few calls at first
//! (slow start).

mod gate;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate::clock::{Clock as _, TokioClock};
use tidegate_core::Time;
use tidegate_core::breaker::{BreakerSettings, BreakerState, CallOutcome, Transition};
use tidegate_llm::CallError;
use tidegate_llm::rate_limit::bounded_model_name;
use tidegate_llm::telemetry::Observer;
use tidegate_providers::{Class, Failure, Provider};

use self::gate::{Admission, EndedCall, Gate};

/// Maximum number of gates for combinations of model and key.
const MAX_MODEL_GATES: usize = 256;
/// Maximum length of a model and key in the log.
const MAX_LOGGED_LEN: usize = 64;
/// How long the trial of a provider is reserved for models and keys that are not failing
/// themselves.
const TRIAL_GRACE: Duration = Duration::from_secs(2);

/// Status of the circuit breaker of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerStatus {
    /// Whether the breaker is enabled.
    pub is_enabled: bool,
    /// State of the provider, or of its worst model.
    pub state: BreakerState,
    /// Number of combinations of model and key that are open or half-open.
    pub open_models: usize,
    /// How long calls will be refused, if they are.
    pub open_for: Option<Duration>,
    /// Number of times the provider or a model was opened.
    pub opened: u64,
    /// The last failure that opened the breaker, without prompt or key.
    pub last_failure: Option<Arc<str>>,
}

/// The breaker of a provider. Clones share its state.
#[derive(Clone)]
pub(crate) struct ProviderBreaker(Arc<Inner>);

struct Inner {
    provider: Provider,
    observer: Arc<dyn Observer>,
    clock: TokioClock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` while the breaker is disabled.
    settings: Option<BreakerSettings>,
    provider_gate: Gate,
    /// Model and key of the first of the consecutive failures, and failed calls of other models or
    /// keys since.
    first_failing: Option<(Arc<str>, Vec<u64>)>,
    model_gates: HashMap<Arc<str>, Gate>,
    opened: u64,
    last_failure: Option<Arc<str>>,
}

impl ProviderBreaker {
    /// Creates a closed breaker. Without settings it admits everything.
    pub(crate) fn new(
        provider: Provider,
        settings: Option<BreakerSettings>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let state = State {
            settings,
            provider_gate: Gate::new(settings.unwrap_or_default()),
            first_failing: None,
            model_gates: HashMap::new(),
            opened: 0,
            last_failure: None,
        };
        let clock = TokioClock::new();
        Self(Arc::new(Inner { provider, observer, clock, state: Mutex::new(state) }))
    }

    /// Applies other settings. A disabled breaker is reset.
    pub(crate) fn configure(&self, settings: Option<BreakerSettings>) {
        let mut state = self.0.lock();
        state.settings = settings;
        let Some(settings) = settings else {
            state.reset();
            return;
        };
        state.provider_gate.reconfigure(settings);
        state.model_gates.values_mut().for_each(|gate| gate.reconfigure(settings));
    }

    /// Resets the breaker, because the provider has another base URL.
    pub(crate) fn reset(&self) {
        self.0.lock().reset();
    }

    /// Returns the current status.
    pub(crate) fn status(&self) -> BreakerStatus {
        let (state, now) = (self.0.lock(), self.0.clock.now());
        let gates = || state.model_gates.values().chain([&state.provider_gate]);
        let worst = gates().map(|gate| gate.state(now)).max_by_key(|state| severity(*state));
        let model_gates =
            state.model_gates.values().filter(|gate| gate.state(now) != BreakerState::Closed);
        BreakerStatus {
            is_enabled: state.settings.is_some(),
            state: worst.unwrap_or(BreakerState::Closed),
            open_models: model_gates.count(),
            open_for: gates().filter_map(|gate| gate.open_for(now)).max(),
            opened: state.opened,
            last_failure: state.last_failure.clone(),
        }
    }

    /// Refuses a call that should not queue because it could not be sent now. Reserves nothing.
    ///
    /// # Errors
    /// [`CallError::CircuitOpen`] while the gate of the provider or the model is open.
    pub(crate) fn check(&self, key: &str, model: &str) -> Result<(), CallError> {
        let (state, now) = (self.0.lock(), self.0.clock.now());
        if state.settings.is_none() {
            return Ok(());
        }
        let has_no_model_gates = state.model_gates.is_empty();
        let gate =
            if has_no_model_gates { None } else { state.model_gates.get(&*model_key(key, model)) };
        let checked = gate.map_or(Ok(()), |gate| gate.check(now));
        checked
            .and_then(|()| state.provider_gate.check(now))
            .map_err(|after| self.0.open_error(after))
    }

    /// Admits an attempt. `key` is the hash of the credential. `call` identifies the call; all its
    /// attempts have the same value.
    ///
    /// # Errors
    /// [`CallError::CircuitOpen`] while the gate of the provider or the model is open, or slow
    /// start admits no more calls.
    pub(crate) fn admit(
        &self,
        key: &str,
        model: &str,
        call: u64,
    ) -> Result<AdmittedAttempt, CallError> {
        let (mut state, now) = (self.0.lock(), self.0.clock.now());
        let mut attempt = AdmittedAttempt {
            breaker: self.0.clone(),
            model_key: Arc::from(""),
            provider_admission: None,
            model_admission: None,
            call,
            started_at: now,
        };
        if state.settings.is_none() {
            return Ok(attempt);
        }
        attempt.model_key = model_key(key, model);
        let model_state = state.model_gates.get(&attempt.model_key).map(|gate| gate.state(now));
        let is_model_failing =
            model_state.is_some_and(|model_state| model_state != BreakerState::Closed);
        if is_model_failing
            && state.provider_gate.trial_due(now).is_some_and(|due| due < TRIAL_GRACE)
        {
            return Err(self.0.open_error(TRIAL_GRACE));
        }
        let gate = state.model_gates.get_mut(&attempt.model_key).map(|gate| gate.admit(now));
        attempt.model_admission = gate.transpose().map_err(|after| self.0.open_error(after))?;
        match state.provider_gate.admit(now) {
            Ok(admission) => attempt.provider_admission = Some(admission),
            Err(after) => {
                // Return the slot in the model's gate.
                let ended = attempt.ended_call(CallOutcome::Unknown, false);
                if let Some((gate, admission)) =
                    state.model_gates.get_mut(&attempt.model_key).zip(attempt.model_admission)
                {
                    gate.settle(admission, ended, now, (0, false));
                }
                attempt.model_admission = None;
                return Err(self.0.open_error(after));
            }
        }
        let trials = [
            (None, attempt.provider_admission),
            (Some(&*attempt.model_key), attempt.model_admission),
        ];
        drop(state);
        for (model, admission) in trials {
            if admission.is_some_and(|admission| admission.is_trial) {
                self.0.report(model, BreakerState::HalfOpen, None, None);
            }
        }
        Ok(attempt)
    }
}

impl fmt::Debug for ProviderBreaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProviderBreaker").field(&self.0.provider).field(&self.status()).finish()
    }
}

/// An admitted attempt. If dropped without an outcome, it is not counted: its caller disconnected.
#[must_use = "dropping an attempt discards its outcome"]
pub(crate) struct AdmittedAttempt {
    breaker: Arc<Inner>,
    /// Model and key.
    model_key: Arc<str>,
    /// `None` while the breaker is disabled, and after the attempt was settled.
    provider_admission: Option<Admission>,
    model_admission: Option<Admission>,
    call: u64,
    started_at: Time,
}

impl AdmittedAttempt {
    /// Records the result of the attempt.
    pub(crate) fn settle<T>(mut self, result: &Result<T, CallError>) {
        let error = result.as_ref().err();
        self.record(error.map_or(CallOutcome::Succeeded, outcome_of), error);
    }

    fn ended_call(&self, outcome: CallOutcome, is_overload: bool) -> EndedCall {
        EndedCall { call: self.call, started_at: self.started_at, outcome, is_overload }
    }

    fn record(&mut self, outcome: CallOutcome, error: Option<&CallError>) {
        let Some(admission) = self.provider_admission.take() else { return };
        let is_overload = error.is_some_and(|error| error.class() == Class::Overloaded);
        let is_unreachable = error.is_some_and(is_unreachable);
        let (ended, now) = (self.ended_call(outcome, is_overload), self.breaker.clock.now());
        let breaker = &self.breaker;
        let mut state = breaker.lock();
        let Some(settings) = state.settings else { return };
        let failures = usize::try_from(settings.failures()).unwrap_or(usize::MAX);
        let is_provider_wide =
            state.record_outcome(&self.model_key, ended, failures) || is_unreachable;
        // A model or key in its own trial is already known to fail.
        let is_model_trial = self
            .model_admission
            .is_some_and(|admission| admission.is_trial || admission.is_slow_start);
        let provider_outcome = match outcome {
            CallOutcome::Failed if is_model_trial && !is_unreachable => CallOutcome::Unknown,
            outcome => outcome,
        };
        let provider_end = EndedCall { outcome: provider_outcome, ..ended };
        let provider_change =
            state.provider_gate.settle(admission, provider_end, now, (failures, is_provider_wide));
        let model_change = match outcome {
            // A connection failure is not caused by a model.
            CallOutcome::Failed if is_unreachable => {
                let ended = EndedCall { outcome: CallOutcome::Unknown, ..ended };
                state.settle_model(self, ended, now, failures)
            }
            _ => state.settle_model(self, ended, now, failures),
        };
        let opened = |change: &Option<Transition>| matches!(change, Some(Transition::Opened(_)));
        if opened(&provider_change) || opened(&model_change) {
            state.opened += 1;
            state.last_failure = error.map(|error| redacted_error(error).into());
        }
        drop(state);
        for (model, change) in [(None, provider_change), (Some(&*self.model_key), model_change)] {
            let (state, span) = match change {
                Some(Transition::Opened(span)) => (BreakerState::Open, span),
                Some(Transition::Closed(span)) => (BreakerState::Closed, span),
                None => continue,
            };
            breaker.report(model, state, Some(span), error);
        }
    }
}

impl Drop for AdmittedAttempt {
    fn drop(&mut self) {
        self.record(CallOutcome::Unknown, None);
    }
}

impl fmt::Debug for AdmittedAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmittedAttempt").field("call", &self.call).finish_non_exhaustive()
    }
}

impl State {
    fn reset(&mut self) {
        self.provider_gate = Gate::new(self.settings.unwrap_or_default());
        self.model_gates.clear();
        self.first_failing = None;
    }

    /// Records an ended call. Returns whether the consecutive failures involve several models or
    /// keys.
    fn record_outcome(&mut self, model: &Arc<str>, ended: EndedCall, failures: usize) -> bool {
        // Half of them must belong to other models or keys before the provider is to blame.
        let needed = failures.div_ceil(2);
        match (ended.outcome, &mut self.first_failing) {
            (CallOutcome::Succeeded, _) => self.first_failing = None,
            (CallOutcome::Failed, None) => self.first_failing = Some((model.clone(), Vec::new())),
            (CallOutcome::Failed, Some((first, others)))
                if first != model && others.len() < needed && !others.contains(&ended.call) =>
            {
                others.push(ended.call);
            }
            _ => {}
        }
        self.first_failing.as_ref().is_some_and(|(_, others)| others.len() >= needed)
    }

    fn settle_model(
        &mut self,
        attempt: &AdmittedAttempt,
        ended: EndedCall,
        now: Time,
        failures: usize,
    ) -> Option<Transition> {
        if ended.outcome == CallOutcome::Failed && self.model_gates.len() < MAX_MODEL_GATES {
            let settings = self.settings?;
            self.model_gates
                .entry(attempt.model_key.clone())
                .or_insert_with(|| Gate::new(settings));
        }
        let gate = self.model_gates.get_mut(&attempt.model_key)?;
        let admission = attempt.model_admission.or_else(|| gate.untracked_admission())?;
        let change = gate.settle(admission, ended, now, (failures, true));
        if gate.is_clean() {
            self.model_gates.remove(&attempt.model_key);
        }
        change
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_error(&self, after: Duration) -> CallError {
        CallError::CircuitOpen { provider: self.provider.clone(), after }
    }

    /// Logs a state change and notifies the observer.
    fn report(
        &self,
        model: Option<&str>,
        state: BreakerState,
        span: Option<Duration>,
        error: Option<&CallError>,
    ) {
        let provider = &self.provider;
        let ms = span.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        let scope = model.map(|model| model.chars().take(MAX_LOGGED_LEN).collect::<String>());
        match (state, error) {
            (BreakerState::Open, Some(error)) => {
                tracing::warn!(%provider, scope, open_for_ms = ms, %error, "breaker opened");
            }
            (BreakerState::Open, None) => {
                tracing::warn!(%provider, scope, open_for_ms = ms, "breaker opened");
            }
            (BreakerState::Closed, _) => {
                tracing::info!(%provider, scope, was_open_ms = ms, "breaker closed");
            }
            _ => tracing::info!(%provider, scope, "breaker half-open"),
        }
        self.observer.breaker_changed(provider, state);
    }
}

/// Classifies an error: only failures caused by the provider count.
fn outcome_of(error: &CallError) -> CallOutcome {
    match error {
        CallError::Connection { .. } | CallError::InvalidResponse { .. } => CallOutcome::Failed,
        CallError::Provider(failure) => match failure.class {
            Class::Overloaded => CallOutcome::Failed,
            // A 4xx status concerns this request only. An error in a stream has status 200.
            Class::Transient if !failure.status.is_client_error() => CallOutcome::Failed,
            _ => CallOutcome::Rejected,
        },
        _ => CallOutcome::Unknown,
    }
}

/// Formats an error for callers of other calls, without the provider's own text.
fn redacted_error(error: &CallError) -> String {
    match error {
        CallError::Provider(failure) => {
            let (provider, class) = (failure.provider.clone(), failure.class);
            Failure::new(provider, class, failure.status).to_string()
        }
        error => error.to_string(),
    }
}

fn is_unreachable(error: &CallError) -> bool {
    matches!(error, CallError::Connection { kind, .. } if !kind.was_connected())
}

/// Orders states by severity, worst last.
const fn severity(state: BreakerState) -> u8 {
    match state {
        BreakerState::Closed => 0,
        BreakerState::Open => 2,
        _ => 1,
    }
}

/// Returns the gate key of a model and key; case-insensitive.
fn model_key(key: &str, model: &str) -> Arc<str> {
    let model = bounded_model_name(model);
    let mut name = [key, "/", &*model].concat();
    if !model.is_ascii() {
        name = name.to_lowercase();
    }
    name.make_ascii_lowercase();
    name.into()
}
