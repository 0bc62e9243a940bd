//! Tracks the concurrent calls of an HTTP/2 connection, for eviction.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use super::eviction::{Evict, Wait};

/// The number of calls in flight on a connection, and whether it must close.
#[derive(Debug)]
pub(crate) struct ActiveCalls(Mutex<State>);

#[derive(Debug)]
struct State {
    in_flight: usize,
    has_received_call: bool,
    /// When the last call ended, or the connection began.
    since: Instant,
    is_evicted: bool,
    /// Wakes the task that serves the connection.
    task: Option<Waker>,
}

impl ActiveCalls {
    /// Creates the state of a connection that begins now.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State {
            in_flight: 0,
            has_received_call: false,
            since: Instant::now(),
            is_evicted: false,
            task: None,
        }))
    }

    /// Returns whether any call has been received.
    pub(crate) fn has_received_call(&self) -> bool {
        self.state().has_received_call
    }

    /// Registers a call. It ends when the returned guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> CallGuard {
        let mut state = self.state();
        state.in_flight += 1;
        state.has_received_call = true;
        CallGuard(self.clone())
    }

    /// Ready once the connection is evicted and no call is in flight.
    pub(crate) fn poll_evicted(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.is_evicted && state.in_flight == 0 {
            return Poll::Ready(());
        }
        state.task = Some(cx.waker().clone());
        Poll::Pending
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    const fn current_wait(&self) -> Option<Wait> {
        match (self.in_flight, self.has_received_call) {
            (0, true) => Some(Wait::Request { since: self.since }),
            (0, false) => Some(Wait::Head { since: self.since }),
            _ => None,
        }
    }
}

impl Evict for ActiveCalls {
    fn current_wait(&self) -> Option<Wait> {
        self.state().current_wait()
    }

    fn evict(&self, wait: Wait) -> bool {
        let mut state = self.state();
        if state.current_wait() != Some(wait) {
            return false;
        }
        state.is_evicted = true;
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
        true
    }
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct CallGuard(Arc<ActiveCalls>);

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.in_flight -= 1;
        state.since = Instant::now();
        let task = if state.is_evicted { state.task.take() } else { None };
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}
