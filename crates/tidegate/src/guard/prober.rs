//! The prober: a task that probes a store which is down until it is back.
//!
//! It holds the guard only during a probe, so an unused guard is freed at most one timeout later.
//! It runs in the runtime of the caller that started it. When that runtime ends or stops being
//! driven, a later caller starts another prober in its own.
//!
//! A store that is up is probed in two cases: once after a call with a short deadline got no
//! answer, and on request, by a health check.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate_core::StoreError;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout};

use super::breaker::{Number, Turn};
use super::call::{Inner, recovered, went_down};

/// Makes sure that a store which is down has a prober. Outside a runtime, this is left to the next
/// caller that is in one.
pub(super) fn attend(guard: &Arc<Inner>, now: Instant) {
    let Ok(runtime) = Handle::try_current() else { return };
    if let Some(number) = guard.breaker.enlist(now, guard.timeout) {
        // Created here and not in the task: a runtime that shuts down drops the task unpolled.
        let duty = Duty { guard: Arc::downgrade(guard), number };
        runtime.spawn(probe(duty));
    }
}

/// Probes a store that is up, once and with the full timeout, after a call with less time got no
/// answer. If the probe fails, the store is down.
pub(super) fn doubt(guard: &Arc<Inner>, turn: Turn, now: Instant) {
    let Ok(runtime) = Handle::try_current() else { return };
    if !guard.breaker.doubt(turn, now, guard.timeout) {
        return;
    }
    let guard = Arc::downgrade(guard);
    runtime.spawn(async move {
        let Some(guard) = guard.upgrade() else { return };
        if let Err(error) = ask(&guard).await {
            let now = Instant::now();
            if guard.breaker.confirmed(turn, now, jitter()) {
                went_down(&guard, Some(&error), now);
            }
        }
    });
}

/// How long the result of a check is reused.
const FRESH: Duration = Duration::from_millis(250);

/// Probes a store that is up, as often as it takes failed calls to mark it as down. Concurrent
/// checks wait for the result.
pub(super) async fn check(guard: &Arc<Inner>) {
    let mut checked = guard.checked.lock().await;
    if checked.is_some_and(|at| Instant::now().saturating_duration_since(at) < FRESH) {
        return;
    }
    // A store that is down has a prober.
    while let Some(turn) = guard.breaker.begin() {
        let Err(error) = ask(guard).await else {
            guard.breaker.answered();
            break;
        };
        let now = Instant::now();
        if guard.breaker.failed(turn, now, jitter()) {
            went_down(guard, Some(&error), now);
        }
    }
    *checked = Some(Instant::now());
}

/// Any number, to spread the probes of many nodes.
pub(super) fn jitter() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A registered prober. Dropping it lets another one take over.
struct Duty {
    guard: Weak<Inner>,
    number: Number,
}

impl Duty {
    /// Time of the next probe; `None` if this prober is no longer needed.
    fn due(&self) -> Option<Instant> {
        self.guard.upgrade()?.breaker.due(self.number)
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.upgrade() {
            guard.breaker.resigned(self.number);
        }
    }
}

async fn probe(duty: Duty) {
    while let Some(due) = duty.due() {
        sleep_until(due).await;
        let Some(guard) = duty.guard.upgrade() else { return };
        if guard.breaker.due(duty.number).is_none() {
            return;
        }
        match ask(&guard).await {
            Ok(()) => return recovered(&guard, duty.number),
            Err(_) => guard.breaker.unanswered(duty.number, Instant::now(), jitter()),
        }
    }
}

async fn ask(guard: &Inner) -> Result<(), StoreError> {
    timeout(guard.timeout, guard.store.probe()).await.unwrap_or(Err(StoreError::TimedOut))
}
