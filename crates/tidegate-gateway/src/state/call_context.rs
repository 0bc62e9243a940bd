//! The context of a call: what is known of it from its arrival to the end of its answer.
//!
//! Attempts update it. The observer is told when the last reference is dropped: once, however a call
//! ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tidegate_providers::{Class, Endpoint, Usage};
use tokio::time::Instant;

use crate::call_observer::{CallObserver, FinishedCall, Outcome};
use crate::state::accounts::AccountEntry;
use crate::state::provider_state::{ProviderState, QueuedCall};
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

/// An error response of a provider, as it came.
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
    /// Whose call it is; empty before it waits.
    tenant: Arc<str>,
    queued_call: Option<QueuedCall>,
    wait: Duration,
    limited_by: Option<&'static str>,
    attempts: u32,
    throttled: u32,
    original: Option<OriginalError>,
    usage: Option<Usage>,
    outcome: Outcome,
    status: Option<StatusCode>,
}

/// What the headers of an answer say about a call.
pub(crate) struct Summary {
    pub(crate) wait: Duration,
    pub(crate) attempts: u32,
    pub(crate) limited_by: Option<&'static str>,
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
            tenant: Arc::default(),
            queued_call: None,
            wait: Duration::ZERO,
            limited_by: None,
            attempts: 0,
            throttled: 0,
            original: None,
            usage: None,
            // Stays if the caller goes away before anything else is known.
            outcome: Outcome::Cancelled,
            status: None,
        };
        Self {
            id,
            provider_state,
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

    /// Sets the account and the tenant, and starts to measure the wait.
    pub(crate) fn start_waiting(&self, entry: Arc<AccountEntry>, tenant: Arc<str>) {
        let mut state = self.lock();
        state.tenant = tenant;
        (state.entry, state.waiting_since) = (Some(entry), Some(Instant::now()));
    }

    /// Whether an attempt is at a provider.
    pub(crate) fn is_at_provider(&self) -> bool {
        self.is_at_provider.load(Ordering::Acquire)
    }

    /// Counts the call as queued from now on.
    pub(crate) fn mark_queued(&self) {
        let mut state = self.lock();
        if let (Some(since), None) = (state.waiting_since, &state.queued_call) {
            state.queued_call = Some(self.provider_state.enqueue(since, state.tenant.clone()));
        }
    }

    /// An attempt is sent to a provider.
    pub(crate) fn attempt_started(&self) {
        let mut state = self.lock();
        state.queued_call = None;
        if let Some(since) = state.waiting_since.take() {
            state.wait += since.elapsed();
        }
        state.attempts = state.attempts.saturating_add(1);
        self.is_at_provider.store(true, Ordering::Release);
    }

    /// An attempt failed; another may follow.
    pub(crate) fn attempt_failed(&self) {
        self.lock().waiting_since = Some(Instant::now());
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

    /// Keeps the error of the provider that the caller named.
    pub(crate) fn keep_original_error(&self, original: OriginalError, class: Class, model: &str) {
        let mut state = self.lock();
        if let (true, Some(entry)) = (is_long(class), &state.entry) {
            entry.quota_exhausted(model, original.clone());
        }
        state.original = Some(original);
    }

    /// The last error of the provider that the caller named.
    pub(crate) fn original_error(&self) -> Option<OriginalError> {
        self.lock().original.clone()
    }

    /// The provider's error when the quota of the model ran out, from an earlier call.
    pub(crate) fn exhausted_quota_error(&self, model: &str) -> Option<OriginalError> {
        let entry = self.lock().entry.clone();
        entry.and_then(|entry| entry.exhausted_quota_error(model))
    }

    /// Sets the usage reported so far.
    pub(crate) fn set_usage(&self, usage: Usage) {
        self.lock().usage = Some(usage);
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
        let State { wait, attempts, limited_by, .. } = *state;
        Summary { wait, attempts, limited_by }
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
        self.call_observer.finished(&FinishedCall {
            provider: self.provider_state.provider(),
            model: state.label.as_deref().unwrap_or(OTHER),
            endpoint: state.endpoint.as_ref(),
            outcome: state.outcome,
            wait: state.wait,
            limited_by: state.limited_by,
            attempts: state.attempts,
            upstream_429s: state.throttled,
            usage: state.usage,
            status: state.status,
        });
        if let Some(entry) = state.entry.take() {
            self.provider_state.accounts().call_ended(&entry);
        }
    }
}
