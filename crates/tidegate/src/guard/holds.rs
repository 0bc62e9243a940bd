//! Holds that the store has not heard of: kept until it answers, and told then.
//!
//! A hold never shortens another one, so one that the store has carried out without saying so may
//! be told again. This is the only thing that a guard ever sends twice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tidegate_core::{Answers, KeyBuf, Limit, Operation, Target, Time, Windows};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::call::{Inner, is_failure};

/// How many are kept.
const MOST: usize = 1_024;
/// How many are told in one call.
const AT_ONCE: usize = 64;
/// How long one is left to tell them, and how long after a try that failed the next one is.
const PAUSE: Duration = Duration::from_secs(5);

/// The holds that the store has not heard of.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Whether there are any: all that a call looks at as long as there are none.
    any: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    holds: HashMap<(Arc<str>, KeyBuf), Hold>,
    /// Before this nobody else need tell them.
    rest: Option<Instant>,
}

/// One of them, by the clock of the guard's own store.
#[derive(Clone, Debug)]
struct Hold {
    limit: Limit,
    windows: Option<Windows>,
    until: Time,
}

impl Holds {
    /// Keeps a hold that was recorded here alone. Beyond the bound it is not kept, and stays so.
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

    /// A key was reset, and with it its hold.
    pub(super) fn forget(&self, target: &Target<'_>) {
        if self.any.load(Ordering::Relaxed) {
            self.lock().holds.remove(&name(target));
        }
    }

    /// The store is back: whoever failed to tell them before is no reason to wait.
    pub(super) fn hurry(&self) {
        self.lock().rest = None;
    }

    /// Whether the caller is to tell them.
    fn begin(&self, now: Instant) -> bool {
        let mut kept = self.lock();
        if kept.rest.is_some_and(|rest| now < rest) {
            return false;
        }
        kept.rest = Some(now + PAUSE);
        true
    }

    /// Some that have not run out yet; when there are none, the caller is done.
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

    /// The store has heard of this one. A longer one may have come since, which it has not.
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

/// Tells a store that answers of the holds that it has not heard of, in the background.
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
            // One that the store cannot carry out it will not carry out next time either.
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
