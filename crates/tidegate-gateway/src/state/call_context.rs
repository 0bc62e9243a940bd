//! The context of a call: its state from arrival to the end of the response.
//!
//! Attempts update it. Dropping the last reference notifies the observer, so this happens exactly
//! once however the call ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tidegate_providers::{Class, Endpoint, Provider, Usage};
use tokio::time::Instant;

use crate::call_observer::{CallDetails, CallObserver, FinishedCall, Outcome};
use crate::request::caller::CallerIdentity;
use crate::state::accounts::AccountEntry;
use crate::state::provider_state::{ProviderState, QueuedCall};
use crate::state::queue_limits::{QueueFull, QueueMember};
use crate::state::request_ids::RequestId;

/// Metrics label of models that are not configured by name.
const OTHER_MODEL: &str = "other";

/// A longer delay closes the model instead of being waited for.
const LONG_DELAY: Duration = Duration::from_secs(600);

/// Whether a failure of this class lasts too long to wait for.
pub(crate) fn is_long_lasting(class: Class) -> bool {
    match class {
        Class::ExhaustedQuota { .. } => true,
        class => class.after().is_some_and(|after| after > LONG_DELAY),
    }
}

/// An error response of a provider, unchanged except for the masked configured key.
#[derive(Clone)]
pub(crate) struct OriginalError {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The state of a call, shared by its attempts.
pub(crate) struct CallContext {
    pub(crate) id: RequestId,
    pub(crate) provider_state: Arc<ProviderState>,
    call_observer: Arc<dyn CallObserver>,
    wants_details: bool,
    started_at: Instant,
    /// Whether an attempt is at a provider.
    is_at_provider: AtomicBool,
    state: Mutex<State>,
}

struct State {
    entry: Option<Arc<AccountEntry>>,
    endpoint: Option<Endpoint>,
    model_label: Option<Arc<str>>,
    /// Start of the current wait; `None` while an attempt is at a provider, and after the last one.
    waiting_since: Option<Instant>,
    /// The caller; `None` before the call waits.
    caller: Option<CallerIdentity>,
    queued_call: Option<QueuedCall>,
    wait: Duration,
    /// What its attempts waited for.
    waited_for: Vec<(&'static str, Duration)>,
    limited_by: Option<&'static str>,
    attempts: u32,
    upstream_429s: u32,
    original_error: Option<OriginalError>,
    /// The provider of the last attempt.
    served_by: Option<Provider>,
    /// Input tokens of an attempt that has no response yet.
    sent_input: Option<u64>,
    usage: Option<Usage>,
    response_failure: Option<Class>,
    outcome: Outcome,
    status: Option<StatusCode>,
    model: Option<Box<str>>,
    reserved: Option<(u64, u64)>,
    has_estimated_tokens: bool,
}

/// What the response headers report about a call.
pub(crate) struct CallSummary {
    pub(crate) wait: Duration,
    /// Longest first.
    pub(crate) waited_for: Vec<(&'static str, Duration)>,
    pub(crate) attempts: u32,
    pub(crate) limited_by: Option<&'static str>,
    pub(crate) has_estimated_tokens: bool,
}

impl CallContext {
    pub(crate) fn new(
        id: RequestId,
        provider_state: Arc<ProviderState>,
        call_observer: Arc<dyn CallObserver>,
    ) -> Self {
        let state = State {
            entry: None,
            endpoint: None,
            model_label: None,
            waiting_since: None,
            caller: None,
            queued_call: None,
            wait: Duration::ZERO,
            waited_for: Vec::new(),
            limited_by: None,
            attempts: 0,
            upstream_429s: 0,
            original_error: None,
            served_by: None,
            sent_input: None,
            usage: None,
            response_failure: None,
            // Remains if the caller disconnects before the outcome is known.
            outcome: Outcome::Cancelled,
            status: None,
            model: None,
            reserved: None,
            has_estimated_tokens: false,
        };
        Self {
            id,
            provider_state,
            wants_details: call_observer.wants_details(),
            started_at: Instant::now(),
            call_observer,
            is_at_provider: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// Sets the endpoint and the model's metrics label.
    pub(crate) fn set_endpoint(&self, endpoint: Endpoint, model_label: Option<Arc<str>>) {
        let mut state = self.lock();
        (state.endpoint, state.model_label) = (Some(endpoint), model_label);
    }

    /// Records that the tokens of the request were estimated by its size.
    pub(crate) fn set_tokens_estimated(&self) {
        self.lock().has_estimated_tokens = true;
    }

    /// Records the model, if the observer wants details.
    pub(crate) fn set_model(&self, model: Option<&str>) {
        if self.wants_details {
            self.lock().model = model.map(Box::from);
        }
    }

    /// Sets the account and the caller, and starts measuring the wait.
    pub(crate) fn start_waiting(&self, entry: Arc<AccountEntry>, caller: CallerIdentity) {
        let mut state = self.lock();
        state.caller = Some(caller);
        (state.entry, state.waiting_since) = (Some(entry), Some(Instant::now()));
    }

    /// Whether an attempt is at a provider.
    pub(crate) fn is_at_provider(&self) -> bool {
        self.is_at_provider.load(Ordering::Acquire)
    }

    /// Counts the call as queued from now on.
    ///
    /// # Errors
    /// If the queue is full.
    pub(crate) fn mark_queued(&self) -> Result<(), QueueFull> {
        let mut state = self.lock();
        let State { waiting_since, queued_call, caller, entry, .. } = &mut *state;
        if let (Some(since), None, Some(caller)) = (*waiting_since, &queued_call, caller) {
            let member = QueueMember {
                account: entry.as_ref().map_or(0, |entry| Arc::as_ptr(entry).addr()),
                caller: caller.pacer_caller(),
                tenant: caller.tenant.clone(),
            };
            *queued_call = Some(self.provider_state.enqueue(since, caller.label(), member)?);
        }
        Ok(())
    }

    /// Records that an attempt is sent to a provider. `input` is its number of input tokens, if
    /// they are counted.
    pub(crate) fn attempt_started(&self, provider: &Provider, input: Option<u64>) {
        let mut state = self.lock();
        if state.served_by.as_ref() != Some(provider) {
            state.served_by = Some(provider.clone());
        }
        state.sent_input = input;
        state.queued_call = None;
        if let Some(since) = state.waiting_since.take() {
            state.wait += since.elapsed();
        }
        state.attempts = state.attempts.saturating_add(1);
        self.is_at_provider.store(true, Ordering::Release);
    }

    /// Records that an attempt failed. Another one may follow.
    pub(crate) fn attempt_failed(&self) {
        let mut state = self.lock();
        (state.waiting_since, state.sent_input) = (Some(Instant::now()), None);
        drop(state);
        self.is_at_provider.store(false, Ordering::Release);
    }

    /// Stops measuring the wait.
    pub(crate) fn stop_waiting(&self) {
        let mut state = self.lock();
        state.queued_call = None;
        if let Some(since) = state.waiting_since.take() {
            state.wait += since.elapsed();
        }
    }

    /// Adds what an attempt waited for before it got its permit.
    pub(crate) fn add_waits(&self, waits: &[(&'static str, Duration)]) {
        if waits.is_empty() {
            return;
        }
        let mut state = self.lock();
        let State { waited_for, limited_by, .. } = &mut *state;
        for (limit, time) in waits {
            match waited_for.iter_mut().find(|(known, _)| known == limit) {
                Some((_, total)) => *total += *time,
                None => waited_for.push((*limit, *time)),
            }
        }
        waited_for.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        *limited_by = waited_for.first().map(|(limit, _)| *limit);
        drop(state);
        self.provider_state.set_binding(waits[0].0);
    }

    /// Sets the limit that refused the call.
    pub(crate) fn set_limited_by(&self, limit: &'static str) {
        self.provider_state.set_binding(limit);
        self.lock().limited_by = Some(limit);
    }

    /// Records the status of a provider's response.
    pub(crate) fn response_received(&self, status: StatusCode) {
        let mut state = self.lock();
        if status == StatusCode::TOO_MANY_REQUESTS {
            state.upstream_429s = state.upstream_429s.saturating_add(1);
        }
    }

    /// Records the status with which the named provider responded: it tells whether the key is
    /// accepted.
    pub(crate) fn credential_checked(&self, status: StatusCode) {
        if let Some(entry) = &self.lock().entry {
            entry.credential_checked(status);
        }
    }

    /// Keeps the error response of the provider that the caller named.
    pub(crate) fn set_original_error(&self, error: OriginalError) {
        self.lock().original_error = Some(error);
    }

    /// Returns the last error response of the provider that the caller named.
    pub(crate) fn original_error(&self) -> Option<OriginalError> {
        self.lock().original_error.clone()
    }

    /// Sets the tokens that were used.
    pub(crate) fn set_usage(&self, usage: Usage) {
        self.lock().usage = Some(usage);
    }

    /// Records that the call used no tokens.
    pub(crate) fn clear_sent_input(&self) {
        self.lock().sent_input = None;
    }

    /// Sets the reserved input and output tokens.
    pub(crate) fn set_reserved(&self, reserved: (u64, u64)) {
        self.lock().reserved = Some(reserved);
    }

    /// Records that the response failed after it had started.
    pub(crate) fn response_failed(&self, class: Class) {
        let mut state = self.lock();
        (state.response_failure, state.outcome) = (Some(class), Outcome::Broken);
    }

    /// Sets the status of the response to the caller.
    pub(crate) fn set_status(&self, status: StatusCode) {
        self.lock().status = Some(status);
    }

    pub(crate) fn set_outcome(&self, outcome: Outcome) {
        self.lock().outcome = outcome;
    }

    pub(crate) fn summary(&self) -> CallSummary {
        let state = self.lock();
        let State { wait, attempts, limited_by, has_estimated_tokens, .. } = *state;
        let waited_for = state.waited_for.clone();
        CallSummary { wait, waited_for, attempts, limited_by, has_estimated_tokens }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallContext {
    fn drop(&mut self) {
        let mut state = self.lock();
        if let Some(since) = state.waiting_since.take() {
            state.wait += since.elapsed();
        }
        state.queued_call = None;
        // If the caller disconnects before the response, the provider has still received the
        // prompt.
        let sent = state.sent_input.take().map(Usage::estimated_input);
        let request_id = self.wants_details.then(|| self.id.to_string());
        let tenant =
            state.caller.as_ref().filter(|_| self.wants_details).map(CallerIdentity::label);
        let details = request_id.as_deref().map(|request_id| CallDetails {
            request_id,
            tenant: tenant.as_deref(),
            model: state.model.as_deref(),
            reserved: state.reserved,
        });
        self.call_observer.finished(&FinishedCall {
            provider: self.provider_state.provider(),
            model: state.model_label.as_deref().unwrap_or(OTHER_MODEL),
            endpoint: state.endpoint.as_ref(),
            outcome: state.outcome,
            wait: state.wait,
            limited_by: state.limited_by,
            attempts: state.attempts,
            upstream_429s: state.upstream_429s,
            usage: state.usage.or(sent),
            served_by: state.served_by.as_ref(),
            response_failure: state.response_failure,
            status: state.status,
            duration: self.started_at.elapsed(),
            details,
        });
        if let Some(entry) = state.entry.take() {
            self.provider_state.accounts().call_ended(&entry);
        }
    }
}
