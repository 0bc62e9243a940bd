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

use super::breaker::{Epoch, ProberId};
use super::call::{Inner, mark_down, mark_up};

/// Makes sure that a store which is down has a prober. Outside a runtime, this is left to the next
/// caller that is in one.
pub(super) fn ensure_probing(guard: &Arc<Inner>, now: Instant) {
    let Ok(runtime) = Handle::try_current() else { return };
    if let Some(id) = guard.breaker.register_prober(now, guard.timeout) {
        // Created here and not in the task: a runtime that shuts down drops the task unpolled.
        let prober = Prober { guard: Arc::downgrade(guard), id };
        runtime.spawn(run_prober(prober));
    }
}

/// Probes a store that is up, once and with the full timeout, after a call with less time got no
/// answer. If the probe fails, the store is down.
pub(super) fn verify_store(guard: &Arc<Inner>, epoch: Epoch, now: Instant) {
    let Ok(runtime) = Handle::try_current() else { return };
    if !guard.breaker.should_verify(epoch, now, guard.timeout) {
        return;
    }
    let guard = Arc::downgrade(guard);
    runtime.spawn(async move {
        let Some(guard) = guard.upgrade() else { return };
        if let Err(error) = probe_once(&guard).await {
            let now = Instant::now();
            if guard.breaker.verification_failed(epoch, now, jitter()) {
                mark_down(&guard, Some(&error), now);
            }
        }
    });
}

/// How long the result of a check is reused.
const CHECK_REUSE: Duration = Duration::from_millis(250);

/// Probes a store that is up, as often as it takes failed calls to mark it as down. Concurrent
/// checks wait for the result.
pub(super) async fn check(guard: &Arc<Inner>) {
    let mut checked = guard.checked.lock().await;
    if checked.is_some_and(|at| Instant::now().saturating_duration_since(at) < CHECK_REUSE) {
        return;
    }
    // A store that is down has a prober.
    while let Some(epoch) = guard.breaker.current_epoch() {
        let Err(error) = probe_once(guard).await else {
            guard.breaker.call_succeeded();
            break;
        };
        let now = Instant::now();
        if guard.breaker.call_failed(epoch, now, jitter()) {
            mark_down(guard, Some(&error), now);
        }
    }
    *checked = Some(Instant::now());
}

/// Any number, to spread the probes of many nodes.
pub(super) fn jitter() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A registered prober. Dropping it lets another one take over.
struct Prober {
    guard: Weak<Inner>,
    id: ProberId,
}

impl Prober {
    /// Time of the next probe; `None` if this prober is no longer needed.
    fn due(&self) -> Option<Instant> {
        self.guard.upgrade()?.breaker.next_probe(self.id)
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.upgrade() {
            guard.breaker.prober_ended(self.id);
        }
    }
}

async fn run_prober(prober: Prober) {
    while let Some(due) = prober.due() {
        sleep_until(due).await;
        let Some(guard) = prober.guard.upgrade() else { return };
        if guard.breaker.next_probe(prober.id).is_none() {
            return;
        }
        match probe_once(&guard).await {
            Ok(()) => return mark_up(&guard, prober.id),
            Err(_) => guard.breaker.probe_failed(prober.id, Instant::now(), jitter()),
        }
    }
}

async fn probe_once(guard: &Inner) -> Result<(), StoreError> {
    timeout(guard.timeout, guard.store.probe()).await.unwrap_or(Err(StoreError::TimedOut))
}
