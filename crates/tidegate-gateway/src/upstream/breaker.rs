//! The breaker of a provider, over all models and keys that it is called with.
//!
//! It has a gate for the provider, and one for each model that has failed of late with one key. A model
//! that is broken at a provider that works, or a key with which every call fails, closes nothing but
//! itself: failures in a row open the gate of the provider only if they are of several models or keys,
//! or if there was no connection, which is the fault of neither. A key that is rejected, a rate limit
//! and a request that is wrong count nowhere.
//!
//! A call counts once in a row of failures, however often it is retried: one request that a provider
//! cannot take is no reason to keep all others from it. When a provider is back, calls are let through
//! slowly at first.

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

use self::gate::{Admitted, Ended, Gate};

/// The most models with a key that have a gate of their own.
const MAX_MODELS: usize = 256;
/// How much of a model's name and its key's hash the log shows.
const SHOWN: usize = 64;
/// How long the trial of a provider is left to models and keys that have not failed by themselves.
const GRACE: Duration = Duration::from_secs(2);

/// How the breaker of a provider stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerStatus {
    /// Whether there is one.
    pub is_enabled: bool,
    /// The state of the provider, or of the worst of its models.
    pub state: BreakerState,
    /// How many models, each with a key, are left alone by themselves, or tried out.
    pub open_models: usize,
    /// How long calls are refused, if they are.
    pub open_for: Option<Duration>,
    /// How often the provider or a model was left alone.
    pub opened: u64,
    /// The last failure that opened it. It has no prompt and no key.
    pub last_failure: Option<Arc<str>>,
}

/// The breaker of a provider. Clones share it.
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
    /// `None` while it is switched off.
    settings: Option<BreakerSettings>,
    whole: Gate,
    /// Of which model and key the first failure in the row was, and calls of others that failed since.
    suspect: Option<(Arc<str>, Vec<u64>)>,
    models: HashMap<Arc<str>, Gate>,
    opened: u64,
    last_failure: Option<Arc<str>>,
}

impl ProviderBreaker {
    /// A closed one; `None` lets everything through.
    pub(crate) fn new(
        provider: Provider,
        settings: Option<BreakerSettings>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let state = State {
            settings,
            whole: Gate::new(settings.unwrap_or_default()),
            suspect: None,
            models: HashMap::new(),
            opened: 0,
            last_failure: None,
        };
        let clock = TokioClock::new();
        Self(Arc::new(Inner { provider, observer, clock, state: Mutex::new(state) }))
    }

    /// Follows other settings; switched off, it forgets what it knows.
    pub(crate) fn configure(&self, settings: Option<BreakerSettings>) {
        let mut state = self.0.lock();
        state.settings = settings;
        let Some(settings) = settings else {
            state.forget();
            return;
        };
        state.whole.reconfigure(settings);
        state.models.values_mut().for_each(|gate| gate.reconfigure(settings));
    }

    /// Closes it: the provider is at another address, and what was known says nothing.
    pub(crate) fn reset(&self) {
        self.0.lock().forget();
    }

    /// How it stands.
    pub(crate) fn status(&self) -> BreakerStatus {
        let (state, now) = (self.0.lock(), self.0.clock.now());
        let gates = || state.models.values().chain([&state.whole]);
        let worst = gates().map(|gate| gate.state(now)).max_by_key(|state| severity(*state));
        let models = state.models.values().filter(|gate| gate.state(now) != BreakerState::Closed);
        BreakerStatus {
            is_enabled: state.settings.is_some(),
            state: worst.unwrap_or(BreakerState::Closed),
            open_models: models.count(),
            open_for: gates().filter_map(|gate| gate.open_for(now)).max(),
            opened: state.opened,
            last_failure: state.last_failure.clone(),
        }
    }

    /// Refuses a call that is not worth a wait, as nothing is sent now. It reserves nothing.
    ///
    /// # Errors
    /// [`CallError::Open`] while the provider or the model is left alone.
    pub(crate) fn check(&self, key: &str, model: &str) -> Result<(), CallError> {
        let (state, now) = (self.0.lock(), self.0.clock.now());
        if state.settings.is_none() {
            return Ok(());
        }
        let is_calm = state.models.is_empty();
        let gate = if is_calm { None } else { state.models.get(&*scope(key, model)) };
        let checked = gate.map_or(Ok(()), |gate| gate.check(now));
        checked.and_then(|()| state.whole.check(now)).map_err(|after| self.0.refused(after))
    }

    /// Lets an attempt through. `key` is the hash of the credential. `call` tells calls apart; attempts
    /// of one call have the same.
    ///
    /// # Errors
    /// [`CallError::Open`] while the provider or the model is left alone, or as many calls are under
    /// way as slow mode lets through.
    pub(crate) fn admit(
        &self,
        key: &str,
        model: &str,
        call: u64,
    ) -> Result<BreakerPass, CallError> {
        let (mut state, now) = (self.0.lock(), self.0.clock.now());
        let mut pass = BreakerPass {
            breaker: self.0.clone(),
            model: Arc::from(""),
            admitted: None,
            of_model: None,
            call,
            began: now,
        };
        if state.settings.is_none() {
            return Ok(pass);
        }
        pass.model = scope(key, model);
        let own = state.models.get(&pass.model).map(|gate| gate.state(now));
        let is_suspect = own.is_some_and(|own| own != BreakerState::Closed);
        if is_suspect && state.whole.trial_due(now).is_some_and(|due| due < GRACE) {
            return Err(self.0.refused(GRACE));
        }
        let gate = state.models.get_mut(&pass.model).map(|gate| gate.admit(now));
        pass.of_model = gate.transpose().map_err(|after| self.0.refused(after))?;
        match state.whole.admit(now) {
            Ok(admitted) => pass.admitted = Some(admitted),
            Err(after) => {
                // Its place in the model's gate is left to another call.
                let ended = pass.ended(CallOutcome::Unknown, false);
                if let Some((gate, own)) = state.models.get_mut(&pass.model).zip(pass.of_model) {
                    gate.settle(own, ended, now, (0, false));
                }
                pass.of_model = None;
                return Err(self.0.refused(after));
            }
        }
        let trials = [(None, pass.admitted), (Some(&*pass.model), pass.of_model)];
        drop(state);
        for (model, admitted) in trials {
            if admitted.is_some_and(|admitted| admitted.is_trial) {
                self.0.tell(model, BreakerState::HalfOpen, None, None);
            }
        }
        Ok(pass)
    }
}

impl fmt::Debug for ProviderBreaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProviderBreaker").field(&self.0.provider).field(&self.status()).finish()
    }
}

/// An attempt that was let through. Dropped without an outcome it says nothing: its caller has gone.
#[must_use = "an attempt has an outcome"]
pub(crate) struct BreakerPass {
    breaker: Arc<Inner>,
    /// With its key.
    model: Arc<str>,
    /// `None` while the breaker is switched off, and after the outcome was told.
    admitted: Option<Admitted>,
    of_model: Option<Admitted>,
    call: u64,
    began: Time,
}

impl BreakerPass {
    /// The attempt has ended like this.
    pub(crate) fn settle<T>(mut self, result: &Result<T, CallError>) {
        let error = result.as_ref().err();
        self.end(error.map_or(CallOutcome::Answered, outcome_of), error);
    }

    fn ended(&self, outcome: CallOutcome, is_overload: bool) -> Ended {
        Ended { call: self.call, began: self.began, outcome, is_overload }
    }

    fn end(&mut self, outcome: CallOutcome, error: Option<&CallError>) {
        let Some(admitted) = self.admitted.take() else { return };
        let is_overload = error.is_some_and(|error| error.class() == Class::Overloaded);
        let is_unreachable = error.is_some_and(is_unreachable);
        let (ended, now) = (self.ended(outcome, is_overload), self.breaker.clock.now());
        let breaker = &self.breaker;
        let mut state = breaker.lock();
        let Some(settings) = state.settings else { return };
        let failures = usize::try_from(settings.failures()).unwrap_or(usize::MAX);
        let is_broad = state.suspects(&self.model, ended, failures) || is_unreachable;
        // What a model or a key that is tried out by itself fails with is known of it already.
        let is_tried = self.of_model.is_some_and(|own| own.is_trial || own.is_slow);
        let outcome_of_whole = match outcome {
            CallOutcome::Failed if is_tried && !is_unreachable => CallOutcome::Unknown,
            outcome => outcome,
        };
        let of_whole = Ended { outcome: outcome_of_whole, ..ended };
        let whole = state.whole.settle(admitted, of_whole, now, (failures, is_broad));
        let model = match outcome {
            // No model is to blame for a connection.
            CallOutcome::Failed if is_unreachable => {
                let ended = Ended { outcome: CallOutcome::Unknown, ..ended };
                state.settle_model(self, ended, now, failures)
            }
            _ => state.settle_model(self, ended, now, failures),
        };
        let opened = |change: &Option<Transition>| matches!(change, Some(Transition::Opened(_)));
        if opened(&whole) || opened(&model) {
            state.opened += 1;
            state.last_failure = error.map(|error| shown(error).into());
        }
        drop(state);
        for (model, change) in [(None, whole), (Some(&*self.model), model)] {
            let (state, span) = match change {
                Some(Transition::Opened(span)) => (BreakerState::Open, span),
                Some(Transition::Closed(span)) => (BreakerState::Closed, span),
                None => continue,
            };
            breaker.tell(model, state, Some(span), error);
        }
    }
}

impl Drop for BreakerPass {
    fn drop(&mut self) {
        self.end(CallOutcome::Unknown, None);
    }
}

impl fmt::Debug for BreakerPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerPass").field("call", &self.call).finish_non_exhaustive()
    }
}

impl State {
    fn forget(&mut self) {
        self.whole = Gate::new(self.settings.unwrap_or_default());
        self.models.clear();
        self.suspect = None;
    }

    /// Whether the failures in a row are of several models.
    fn suspects(&mut self, model: &Arc<str>, ended: Ended, failures: usize) -> bool {
        // Half of them have to be of others before the provider is to blame.
        let needed = failures.div_ceil(2);
        match (ended.outcome, &mut self.suspect) {
            (CallOutcome::Answered, _) => self.suspect = None,
            (CallOutcome::Failed, None) => self.suspect = Some((model.clone(), Vec::new())),
            (CallOutcome::Failed, Some((first, others)))
                if first != model && others.len() < needed && !others.contains(&ended.call) =>
            {
                others.push(ended.call);
            }
            _ => {}
        }
        self.suspect.as_ref().is_some_and(|(_, others)| others.len() >= needed)
    }

    fn settle_model(
        &mut self,
        pass: &BreakerPass,
        ended: Ended,
        now: Time,
        failures: usize,
    ) -> Option<Transition> {
        if ended.outcome == CallOutcome::Failed && self.models.len() < MAX_MODELS {
            let settings = self.settings?;
            self.models.entry(pass.model.clone()).or_insert_with(|| Gate::new(settings));
        }
        let gate = self.models.get_mut(&pass.model)?;
        let admitted = pass.of_model.or_else(|| gate.first())?;
        let change = gate.settle(admitted, ended, now, (failures, true));
        if gate.is_clean() {
            self.models.remove(&pass.model);
        }
        change
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self, after: Duration) -> CallError {
        CallError::Open { provider: self.provider.clone(), after }
    }

    /// Tells the log and whoever watches of a change.
    fn tell(
        &self,
        model: Option<&str>,
        state: BreakerState,
        span: Option<Duration>,
        error: Option<&CallError>,
    ) {
        let provider = &self.provider;
        let ms = span.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        let scope = model.map(|model| model.chars().take(SHOWN).collect::<String>());
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

/// What an error says about its provider: only what is the provider's own fault is a failure.
fn outcome_of(error: &CallError) -> CallOutcome {
    match error {
        CallError::Connection { .. } | CallError::Unreadable { .. } => CallOutcome::Failed,
        CallError::Provider(failure) => match failure.class {
            Class::Overloaded => CallOutcome::Failed,
            // A status below 500 is about this request. An error in a stream has 200.
            Class::Transient if !failure.status.is_client_error() => CallOutcome::Failed,
            _ => CallOutcome::Rejected,
        },
        _ => CallOutcome::Unknown,
    }
}

/// An error as callers of other calls may see it: without the words and names of the provider.
fn shown(error: &CallError) -> String {
    match error {
        CallError::Provider(failure) => {
            let (provider, class) = (failure.provider.clone(), failure.class);
            Failure::new(provider, class, failure.status).to_string()
        }
        error => error.to_string(),
    }
}

fn is_unreachable(error: &CallError) -> bool {
    matches!(error, CallError::Connection { broken, .. } if !broken.was_connected())
}

/// The order of states, the worst last.
const fn severity(state: BreakerState) -> u8 {
    match state {
        BreakerState::Closed => 0,
        BreakerState::Open => 2,
        _ => 1,
    }
}

/// A model with a key; case does not matter.
fn scope(key: &str, model: &str) -> Arc<str> {
    let model = bounded_model_name(model);
    let mut scope = [key, "/", &*model].concat();
    if !model.is_ascii() {
        scope = scope.to_lowercase();
    }
    scope.make_ascii_lowercase();
    scope.into()
}
