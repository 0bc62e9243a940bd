//! The tab of a call: what is known of it from its arrival to the end of its answer.
//!
//! Attempts write on it, and whoever holds it last tells the witness. So that happens once, however
//! a call ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use tidegate_providers::{Class, Endpoint, Usage};
use tokio::time::Instant;

use crate::call_observer::{Finished, Outcome, Witness};
use crate::state::accounts::Entry;
use crate::state::provider_state::{Desk, Ticket};

/// What calls of models without a configured name are counted as.
const OTHER: &str = "other";

/// A delay that is longer than this closes a model.
const LONG: Duration = Duration::from_secs(600);

/// Whether nothing gets better for a long time.
pub(crate) fn is_long(class: Class) -> bool {
    match class {
        Class::ExhaustedQuota { .. } => true,
        class => class.after().is_some_and(|after| after > LONG),
    }
}

/// An answer of a provider that is an error, as it came.
#[derive(Clone)]
pub(crate) struct Original {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Bytes,
}

/// What is known of a call.
pub(crate) struct Tab {
    pub(crate) id: HeaderValue,
    pub(crate) desk: Arc<Desk>,
    witness: Arc<dyn Witness>,
    /// Whether an attempt is at a provider.
    is_away: AtomicBool,
    state: Mutex<State>,
}

struct State {
    entry: Option<Arc<Entry>>,
    endpoint: Option<Endpoint>,
    label: Option<Arc<str>>,
    /// Since when it is held; `None` while an attempt is at a provider, and after it.
    held: Option<Instant>,
    ticket: Option<Ticket>,
    wait: Duration,
    limited_by: Option<&'static str>,
    attempts: u32,
    throttled: u32,
    original: Option<Original>,
    usage: Option<Usage>,
    outcome: Outcome,
    status: Option<StatusCode>,
}

/// What the fields of an answer tell of a call.
pub(crate) struct Summary {
    pub(crate) wait: Duration,
    pub(crate) attempts: u32,
    pub(crate) limited_by: Option<&'static str>,
}

impl Tab {
    pub(crate) fn open(id: HeaderValue, desk: Arc<Desk>, witness: Arc<dyn Witness>) -> Self {
        let state = State {
            entry: None,
            endpoint: None,
            label: None,
            held: None,
            ticket: None,
            wait: Duration::ZERO,
            limited_by: None,
            attempts: 0,
            throttled: 0,
            original: None,
            usage: None,
            // Until something is known, its caller has gone.
            outcome: Outcome::Cancelled,
            status: None,
        };
        Self { id, desk, witness, is_away: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// It uses this, of the model with this name in metrics.
    pub(crate) fn charges(&self, endpoint: Endpoint, label: Option<Arc<str>>) {
        let mut state = self.lock();
        (state.endpoint, state.label) = (Some(endpoint), label);
    }

    /// It belongs to an account, and waits from now on.
    pub(crate) fn begin(&self, entry: Arc<Entry>) {
        let mut state = self.lock();
        (state.entry, state.held) = (Some(entry), Some(Instant::now()));
    }

    /// Whether an attempt is at a provider.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Acquire)
    }

    /// It is held for a while: from now on it counts as queued.
    pub(crate) fn queue(&self) {
        let mut state = self.lock();
        if let (Some(since), None) = (state.held, &state.ticket) {
            state.ticket = Some(self.desk.queue(since));
        }
    }

    /// An attempt leaves.
    pub(crate) fn departs(&self) {
        let mut state = self.lock();
        state.ticket = None;
        if let Some(since) = state.held.take() {
            state.wait += since.elapsed();
        }
        state.attempts = state.attempts.saturating_add(1);
        self.is_away.store(true, Ordering::Release);
    }

    /// An attempt is back without an answer; another may follow.
    pub(crate) fn returns(&self) {
        self.lock().held = Some(Instant::now());
        self.is_away.store(false, Ordering::Release);
    }

    /// It waits no longer, whatever comes of it.
    pub(crate) fn settles(&self) {
        let mut state = self.lock();
        state.ticket = None;
        if let Some(since) = state.held.take() {
            state.wait += since.elapsed();
        }
    }

    /// What it waited for.
    pub(crate) fn limited_by(&self, limit: &'static str) {
        self.desk.bound(limit);
        self.lock().limited_by = Some(limit);
    }

    /// A provider answered an attempt with this status.
    pub(crate) fn answered(&self, status: StatusCode) {
        let mut state = self.lock();
        if status == StatusCode::TOO_MANY_REQUESTS {
            state.throttled = state.throttled.saturating_add(1);
        }
    }

    /// The provider that was asked for answered with this status, which says what it thinks of the
    /// key.
    pub(crate) fn judged(&self, status: StatusCode) {
        if let Some(entry) = &self.lock().entry {
            entry.judged(status);
        }
    }

    /// The provider that was asked for answered with an error.
    pub(crate) fn failed(&self, original: Original, class: Class, model: &str) {
        let mut state = self.lock();
        if let (true, Some(entry)) = (is_long(class), &state.entry) {
            entry.closed(model, original.clone());
        }
        state.original = Some(original);
    }

    /// The last error of the provider that was asked for.
    pub(crate) fn original(&self) -> Option<Original> {
        self.lock().original.clone()
    }

    /// What an earlier call was told when the quota of the model ran out.
    pub(crate) fn closed_with(&self, model: &str) -> Option<Original> {
        let entry = self.lock().entry.clone();
        entry.and_then(|entry| entry.closed_with(model))
    }

    /// So much is used so far.
    pub(crate) fn uses(&self, usage: Usage) {
        self.lock().usage = Some(usage);
    }

    /// The caller gets this status.
    pub(crate) fn told(&self, status: StatusCode) {
        self.lock().status = Some(status);
    }

    /// What became of it.
    pub(crate) fn ends(&self, outcome: Outcome) {
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

impl Drop for Tab {
    fn drop(&mut self) {
        let mut state = self.lock();
        if let Some(since) = state.held.take() {
            state.wait += since.elapsed();
        }
        state.ticket = None;
        self.witness.finished(&Finished {
            provider: self.desk.provider(),
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
            self.desk.accounts().leaves(&entry);
        }
    }
}
