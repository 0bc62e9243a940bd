//! The prober: one task that asks a store which is down whether it is back.
//!
//! It holds the guard only while it probes, so a guard that nobody wants any more is gone at most
//! one time-out later. It lives in the runtime of the caller that started it; when that runtime
//! ends, or is not run any more, a later caller starts another one in its own.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Weak};

use tidegate_core::Store;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout};

use super::breaker::Number;
use super::call::Inner;

/// Makes sure that a store which is down is probed. Outside of any runtime this is left to the
/// next caller that is in one.
pub(super) fn attend<S: Store + ?Sized + 'static>(guard: &Arc<Inner<S>>, now: Instant) {
    let Ok(runtime) = Handle::try_current() else { return };
    if let Some(number) = guard.breaker.enlist(now, guard.timeout) {
        // Made here and not by the task: a runtime that is shut down drops the task unpolled.
        let duty = Duty { guard: Arc::downgrade(guard), number };
        runtime.spawn(probe(duty));
    }
}

/// Any number, to spread probes.
pub(super) fn jitter() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A prober at its post. However it ends, somebody else may take its place.
struct Duty<S: ?Sized> {
    guard: Weak<Inner<S>>,
    number: Number,
}

impl<S: ?Sized> Duty<S> {
    /// When to probe next; `None` if nobody wants it any more.
    fn due(&self) -> Option<Instant> {
        self.guard.upgrade()?.breaker.due(self.number)
    }
}

impl<S: ?Sized> Drop for Duty<S> {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.upgrade() {
            guard.breaker.resigned(self.number);
        }
    }
}

async fn probe<S: Store + ?Sized>(duty: Duty<S>) {
    while let Some(due) = duty.due() {
        sleep_until(due).await;
        let Some(guard) = duty.guard.upgrade() else { return };
        if guard.breaker.due(duty.number).is_none() {
            return;
        }
        match timeout(guard.timeout, guard.store.probe()).await {
            Ok(Ok(())) => return guard.recovered(duty.number),
            _ => guard.breaker.unanswered(duty.number, Instant::now(), jitter()),
        }
    }
}
