//! The prober: one task that asks a store which is down whether it is back.
//!
//! It holds the guard only while it probes, so a guard that nobody wants any more is gone at most
//! one time-out later. It lives in the runtime of the caller that started it; when that runtime
//! ends, or is not run any more, a later caller starts another one in its own.
//!
//! A store that is up is probed too: once, when somebody in a hurry got no answer from it, and when
//! somebody wants to know how it stands without calling it.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate_core::StoreError;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout};

use super::breaker::{Number, Turn};
use super::call::{Inner, recovered, went_down};

/// Makes sure that a store which is down is probed. Outside of any runtime this is left to the
/// next caller that is in one.
pub(super) fn attend(guard: &Arc<Inner>, now: Instant) {
    let Ok(runtime) = Handle::try_current() else { return };
    if let Some(number) = guard.breaker.enlist(now, guard.timeout) {
        // Made here and not by the task: a runtime that is shut down drops the task unpolled.
        let duty = Duty { guard: Arc::downgrade(guard), number };
        runtime.spawn(probe(duty));
    }
}

/// Probes a store that is up, once and for as long as a probe may take, on behalf of somebody who
/// had less time and got no answer. If there is none to this either, it is down.
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

/// How long what a check has found is not looked at again.
const FRESH: Duration = Duration::from_millis(250);

/// Probes a store that is up, as often as it would take calls to find out that it is down; others who
/// want to know meanwhile wait for that.
pub(super) async fn check(guard: &Arc<Inner>) {
    let mut checked = guard.checked.lock().await;
    if checked.is_some_and(|at| Instant::now().saturating_duration_since(at) < FRESH) {
        return;
    }
    // One that is down has a prober.
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

/// Any number, to spread probes.
pub(super) fn jitter() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A prober at its post. However it ends, somebody else may take its place.
struct Duty {
    guard: Weak<Inner>,
    number: Number,
}

impl Duty {
    /// When to probe next; `None` if nobody wants it any more.
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
