//! Holds that the store does not have yet: kept until it answers, and sent then.
//!
//! A hold never shortens another one. So a hold that the store has applied without confirming it
//! can be sent again; it is the only operation that a guard ever sends twice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tidegate_core::{KeyBuf, Limit, Operation, StoreResponses, Target, Time, Windows};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::call::{Inner, is_failure};

/// Maximum number of pending holds.
const MAX_HOLDS: usize = 1_024;
/// Maximum number of holds per call to the store.
const BATCH_SIZE: usize = 64;
/// How long one delivery may take before another may start, and the delay before a failed one is
/// retried.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The holds that the store does not have yet.
#[derive(Debug, Default)]
pub(super) struct PendingHolds {
    /// Whether there are any. Calls read nothing else while there are none.
    has_any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    holds: HashMap<(Arc<str>, KeyBuf), Hold>,
    /// No other delivery starts before this time.
    next_delivery: Option<Instant>,
}

/// A hold, in times of the guard's own store.
#[derive(Clone, Debug)]
struct Hold {
    limit: Limit,
    windows: Option<Windows>,
    until: Time,
}

impl PendingHolds {
    /// Adds a hold that was recorded only here. Beyond the maximum it is not sent to the store
    /// later.
    pub(super) fn add(&self, target: &Target<'_>, until: Time, now: Time) {
        let mut state = self.lock();
        let id = hold_id(target);
        if state.holds.len() >= MAX_HOLDS && !state.holds.contains_key(&id) {
            state.holds.retain(|_, hold| hold.until > now);
            if state.holds.len() >= MAX_HOLDS {
                return;
            }
        }
        let (limit, windows) = (target.limit.clone(), target.windows);
        state.holds.insert(id, Hold { limit, windows, until });
        self.has_any.store(true, Ordering::Relaxed);
    }

    /// Removes the hold of a key that was reset.
    pub(super) fn remove(&self, target: &Target<'_>) {
        if self.has_any.load(Ordering::Relaxed) {
            self.lock().holds.remove(&hold_id(target));
        }
    }

    /// Allows a retry now: the store is back, so an earlier failed delivery is no reason to wait.
    pub(super) fn retry_now(&self) {
        self.lock().next_delivery = None;
    }

    /// Whether the caller should start a delivery.
    fn try_begin(&self, now: Instant) -> bool {
        let mut state = self.lock();
        if state.next_delivery.is_some_and(|at| now < at) {
            return false;
        }
        state.next_delivery = Some(now + RETRY_DELAY);
        true
    }

    /// Some holds that have not expired. Empty if the delivery is complete.
    fn next_batch(&self, now: Time) -> Vec<(KeyBuf, Hold)> {
        let mut state = self.lock();
        state.holds.retain(|_, hold| hold.until > now);
        if state.holds.is_empty() {
            state.next_delivery = None;
            self.has_any.store(false, Ordering::Relaxed);
        }
        let batch = state.holds.iter().take(BATCH_SIZE);
        batch.map(|((_, key), hold)| (key.clone(), hold.clone())).collect()
    }

    /// Records that the store has this hold. A longer one for the key may have been added since.
    fn mark_delivered(&self, key: &KeyBuf, hold: &Hold) {
        let mut state = self.lock();
        let id = (hold.limit.shared_identity(), key.clone());
        if state.holds.get(&id).is_some_and(|known| known.until <= hold.until) {
            state.holds.remove(&id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hold_id(target: &Target<'_>) -> (Arc<str>, KeyBuf) {
    (target.limit.shared_identity(), target.key.into())
}

/// Sends the pending holds to a store that answers, in the background.
pub(super) fn spawn_delivery(guard: &Arc<Inner>) {
    if !guard.holds.has_any.load(Ordering::Relaxed) {
        return;
    }
    let Ok(runtime) = Handle::try_current() else { return };
    if guard.holds.try_begin(Instant::now()) {
        runtime.spawn(deliver(Arc::downgrade(guard)));
    }
}

async fn deliver(guard: Weak<Inner>) {
    while let Some(guard) = guard.upgrade() {
        let now = guard.time();
        let holds = guard.holds.next_batch(now);
        if holds.is_empty() {
            return;
        }
        let operations: Vec<_> = holds
            .iter()
            .map(|(key, Hold { limit, windows, until })| Operation::Hold {
                target: Target { limit, key: key.as_key(), windows: *windows },
                span: until.since(now),
            })
            .collect();
        let mut answers = StoreResponses::new();
        let in_time = timeout(guard.timeout, guard.store.submit(&operations, &mut answers)).await;
        let missing = in_time.is_err() || answers.len() < holds.len();
        let mut failed = missing;
        for ((key, hold), answer) in holds.iter().zip(&answers) {
            // A hold that the store rejects would be rejected again.
            if answer.as_ref().err().is_some_and(is_failure) {
                failed = true;
            } else {
                guard.holds.mark_delivered(key, hold);
            }
        }
        if failed {
            return;
        }
    }
}
