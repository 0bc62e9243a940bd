//! Holds that the store does not have yet: kept until it answers, and sent then.
//!
//! A hold never shortens another one. So a hold that the store has applied without confirming it
//! can be sent again; it is the only operation that a guard ever sends twice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tidegate_core::{Answers, KeyBuf, Limit, Operation, Target, Time, Windows};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::call::{Inner, is_failure};

/// Maximum number of pending holds.
const MOST: usize = 1_024;
/// Maximum number of holds per call to the store.
const AT_ONCE: usize = 64;
/// How long one delivery may take before another may start, and the delay before a failed one is
/// retried.
const PAUSE: Duration = Duration::from_secs(5);

/// The holds that the store does not have yet.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Whether there are any. Calls read nothing else while there are none.
    any: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    holds: HashMap<(Arc<str>, KeyBuf), Hold>,
    /// No other delivery starts before this time.
    rest: Option<Instant>,
}

/// A hold, in times of the guard's own store.
#[derive(Clone, Debug)]
struct Hold {
    limit: Limit,
    windows: Option<Windows>,
    until: Time,
}

impl Holds {
    /// Adds a hold that was recorded only here. Beyond the maximum it is not sent to the store
    /// later.
    pub(super) fn keep(&self, target: &Target<'_>, until: Time, now: Time) {
        let mut kept = self.lock();
        let name = name(target);
        if kept.holds.len() >= MOST && !kept.holds.contains_key(&name) {
            kept.holds.retain(|_, hold| hold.until > now);
            if kept.holds.len() >= MOST {
                return;
            }
        }
        let (limit, windows) = (target.limit.clone(), target.windows);
        kept.holds.insert(name, Hold { limit, windows, until });
        self.any.store(true, Ordering::Relaxed);
    }

    /// Removes the hold of a key that was reset.
    pub(super) fn forget(&self, target: &Target<'_>) {
        if self.any.load(Ordering::Relaxed) {
            self.lock().holds.remove(&name(target));
        }
    }

    /// Allows a retry now: the store is back, so an earlier failed delivery is no reason to wait.
    pub(super) fn hurry(&self) {
        self.lock().rest = None;
    }

    /// Whether the caller should start a delivery.
    fn begin(&self, now: Instant) -> bool {
        let mut kept = self.lock();
        if kept.rest.is_some_and(|rest| now < rest) {
            return false;
        }
        kept.rest = Some(now + PAUSE);
        true
    }

    /// Some holds that have not expired. Empty if the delivery is complete.
    fn some(&self, now: Time) -> Vec<(KeyBuf, Hold)> {
        let mut kept = self.lock();
        kept.holds.retain(|_, hold| hold.until > now);
        if kept.holds.is_empty() {
            kept.rest = None;
            self.any.store(false, Ordering::Relaxed);
        }
        let some = kept.holds.iter().take(AT_ONCE);
        some.map(|((_, key), hold)| (key.clone(), hold.clone())).collect()
    }

    /// Records that the store has this hold. A longer one for the key may have been added since.
    fn told(&self, key: &KeyBuf, hold: &Hold) {
        let mut kept = self.lock();
        let name = (hold.limit.shared_identity(), key.clone());
        if kept.holds.get(&name).is_some_and(|kept| kept.until <= hold.until) {
            kept.holds.remove(&name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(target: &Target<'_>) -> (Arc<str>, KeyBuf) {
    (target.limit.shared_identity(), target.key.into())
}

/// Sends the pending holds to a store that answers, in the background.
pub(super) fn tell(guard: &Arc<Inner>) {
    if !guard.holds.any.load(Ordering::Relaxed) {
        return;
    }
    let Ok(runtime) = Handle::try_current() else { return };
    if guard.holds.begin(Instant::now()) {
        runtime.spawn(deliver(Arc::downgrade(guard)));
    }
}

async fn deliver(guard: Weak<Inner>) {
    while let Some(guard) = guard.upgrade() {
        let now = guard.time();
        let holds = guard.holds.some(now);
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
        let mut answers = Answers::new();
        let in_time = timeout(guard.timeout, guard.store.submit(&operations, &mut answers)).await;
        let missing = in_time.is_err() || answers.len() < holds.len();
        let mut failed = missing;
        for ((key, hold), answer) in holds.iter().zip(&answers) {
            // A hold that the store rejects would be rejected again.
            if answer.as_ref().err().is_some_and(is_failure) {
                failed = true;
            } else {
                guard.holds.told(key, hold);
            }
        }
        if failed {
            return;
        }
    }
}
