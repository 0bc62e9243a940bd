//! The context of a call: what is known of it from its arrival to the end of its answer.
//!
//! Attempts update it. The observer is told when the last reference is dropped: once, however a call
//! ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tidegate_providers::{Class, Endpoint, Provider, Usage};
use tokio::time::Instant;

use crate::call_observer::{CallDetails, CallObserver, FinishedCall, Outcome};
use crate::request::caller::CallerName;
use crate::state::accounts::AccountEntry;
use crate::state::provider_state::{ProviderState, QueuedCall};
use crate::state::queue_bounds::{QueueFull, QueueMember};
use crate::state::request_ids::RequestId;

/// What calls of models without a configured name are counted as.
const OTHER: &str = "other";

/// A delay that is longer than this closes a model.
const LONG: Duration = Duration::from_secs(600);

/// Whether a failure of this class lasts for a long time.
pub(crate) fn is_long(class: Class) -> bool {
    match class {
        Class::ExhaustedQuota { .. } => true,
        class => class.after().is_some_and(|after| after > LONG),
    }
}

/// An error response of a provider, as it came but for the configured key.
#[derive(Clone)]
pub(crate) struct OriginalError {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What is known of a call.
pub(crate) struct CallContext {
    pub(crate) id: RequestId,
    pub(crate) provider_state: Arc<ProviderState>,
    call_observer: Arc<dyn CallObserver>,
    wants_details: bool,
    began: Instant,
    /// Whether an attempt is at a provider.
    is_at_provider: AtomicBool,
    state: Mutex<State>,
}

struct State {
    entry: Option<Arc<AccountEntry>>,
    endpoint: Option<Endpoint>,
    label: Option<Arc<str>>,
    /// Since when it waits; `None` while an attempt is at a provider, and after it.
    waiting_since: Option<Instant>,
    /// Whose call it is; unknown before it waits.
    caller: Option<CallerName>,
    queued_call: Option<QueuedCall>,
    wait: Duration,
    limited_by: Option<&'static str>,
    attempts: u32,
    throttled: u32,
    original: Option<OriginalError>,
    /// The provider of the last attempt.
    used_at: Option<Provider>,
    /// Input tokens of an attempt that is not answered yet.
    sent_input: Option<u64>,
    usage: Option<Usage>,
    answer_failure: Option<Class>,
    outcome: Outcome,
    status: Option<StatusCode>,
    model: Option<Box<str>>,
    reserved: Option<(u64, u64)>,
    has_estimated_tokens: bool,
}

/// What the headers of an answer say about a call.
pub(crate) struct Summary {
    pub(crate) wait: Duration,
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
            label: None,
            waiting_since: None,
            caller: None,
            queued_call: None,
            wait: Duration::ZERO,
            limited_by: None,
            attempts: 0,
            throttled: 0,
            original: None,
            used_at: None,
            sent_input: None,
            usage: None,
            answer_failure: None,
            // Stays if the caller goes away before anything else is known.
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
            began: Instant::now(),
            call_observer,
            is_at_provider: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// Sets the endpoint, and the name of the model in metrics.
    pub(crate) fn set_endpoint(&self, endpoint: Endpoint, label: Option<Arc<str>>) {
        let mut state = self.lock();
        (state.endpoint, state.label) = (Some(endpoint), label);
    }

    /// The tokens of the request were estimated by its size.
    pub(crate) fn tokens_estimated(&self) {
        self.lock().has_estimated_tokens = true;
    }

    /// Notes the model, if an observer wants to know.
    pub(crate) fn set_model(&self, model: Option<&str>) {
        if self.wants_details {
            self.lock().model = model.map(Box::from);
        }
    }

    /// Sets the account and the caller, and starts to measure the wait.
    pub(crate) fn start_waiting(&self, entry: Arc<AccountEntry>, caller: CallerName) {
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
    /// If too many are queued already.
    pub(crate) fn mark_queued(&self) -> Result<(), QueueFull> {
        let mut state = self.lock();
        let State { waiting_since, queued_call, caller, entry, .. } = &mut *state;
        if let (Some(since), None, Some(caller)) = (*waiting_since, &queued_call, caller) {
            let member = QueueMember {
                account: entry.as_ref().map_or(0, |entry| Arc::as_ptr(entry).addr()),
                caller: caller.caller(),
                tenant: caller.tenant.clone(),
            };
            *queued_call = Some(self.provider_state.enqueue(since, caller.label(), member)?);
        }
        Ok(())
    }

    /// An attempt is sent to a provider, with so many input tokens if it is one that is counted.
    pub(crate) fn attempt_started(&self, provider: &Provider, input: Option<u64>) {
        let mut state = self.lock();
        if state.used_at.as_ref() != Some(provider) {
            state.used_at = Some(provider.clone());
        }
        state.sent_input = input;
        state.queued_call = None;
        if let Some(since) = state.waiting_since.take() {
            state.wait += since.elapsed();
        }
        state.attempts = state.attempts.saturating_add(1);
        self.is_at_provider.store(true, Ordering::Release);
    }

    /// An attempt failed; another may follow.
    pub(crate) fn attempt_failed(&self) {
        let mut state = self.lock();
        (state.waiting_since, state.sent_input) = (Some(Instant::now()), None);
        drop(state);
        self.is_at_provider.store(false, Ordering::Release);
    }

    /// Ends the wait, whatever the result.
    pub(crate) fn stop_waiting(&self) {
        let mut state = self.lock();
        state.queued_call = None;
        if let Some(since) = state.waiting_since.take() {
            state.wait += since.elapsed();
        }
    }

    /// Sets the limit that the call waited for.
    pub(crate) fn set_limited_by(&self, limit: &'static str) {
        self.provider_state.set_binding(limit);
        self.lock().limited_by = Some(limit);
    }

    /// A provider answered an attempt with this status.
    pub(crate) fn provider_answered(&self, status: StatusCode) {
        let mut state = self.lock();
        if status == StatusCode::TOO_MANY_REQUESTS {
            state.throttled = state.throttled.saturating_add(1);
        }
    }

    /// The provider that the caller named answered with this status, which tells whether it accepts
    /// the key.
    pub(crate) fn credential_checked(&self, status: StatusCode) {
        if let Some(entry) = &self.lock().entry {
            entry.credential_checked(status);
        }
    }

    /// Keeps the error of the provider that the caller named, for this call.
    pub(crate) fn keep_original_error(&self, original: OriginalError) {
        self.lock().original = Some(original);
    }

    /// The last error of the provider that the caller named.
    pub(crate) fn original_error(&self) -> Option<OriginalError> {
        self.lock().original.clone()
    }

    /// Sets what was used.
    pub(crate) fn set_usage(&self, usage: Usage) {
        self.lock().usage = Some(usage);
    }

    /// The call used no tokens.
    pub(crate) fn no_usage(&self) {
        self.lock().sent_input = None;
    }

    /// Sets the tokens that were reserved, input and output.
    pub(crate) fn set_expected(&self, reserved: (u64, u64)) {
        self.lock().reserved = Some(reserved);
    }

    /// The answer failed after it had begun.
    pub(crate) fn answer_failed(&self, class: Class) {
        let mut state = self.lock();
        (state.answer_failure, state.outcome) = (Some(class), Outcome::Broken);
    }

    /// Sets the status that the caller gets.
    pub(crate) fn set_status(&self, status: StatusCode) {
        self.lock().status = Some(status);
    }

    /// Sets the outcome.
    pub(crate) fn set_outcome(&self, outcome: Outcome) {
        self.lock().outcome = outcome;
    }

    pub(crate) fn summary(&self) -> Summary {
        let state = self.lock();
        let State { wait, attempts, limited_by, has_estimated_tokens, .. } = *state;
        Summary { wait, attempts, limited_by, has_estimated_tokens }
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
        // A caller that leaves before the answer leaves its prompt with the provider.
        let sent = state.sent_input.take().map(Usage::estimated_input);
        let request_id = self.wants_details.then(|| self.id.to_string());
        let tenant = state.caller.as_ref().filter(|_| self.wants_details).map(CallerName::label);
        let details = request_id.as_deref().map(|request_id| CallDetails {
            request_id,
            tenant: tenant.as_deref(),
            model: state.model.as_deref(),
            reserved: state.reserved,
        });
        self.call_observer.finished(&FinishedCall {
            provider: self.provider_state.provider(),
            model: state.label.as_deref().unwrap_or(OTHER),
            endpoint: state.endpoint.as_ref(),
            outcome: state.outcome,
            wait: state.wait,
            limited_by: state.limited_by,
            attempts: state.attempts,
            upstream_429s: state.throttled,
            usage: state.usage.or(sent),
            used_at: state.used_at.as_ref(),
            answer_failure: state.answer_failure,
            status: state.status,
            duration: self.began.elapsed(),
            details,
        });
        if let Some(entry) = state.entry.take() {
            self.provider_state.accounts().call_ended(&entry);
        }
    }
}
