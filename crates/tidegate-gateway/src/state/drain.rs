//! Draining: waiting calls are refused, calls at a provider continue.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Whether the gateway is draining.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    is_on: AtomicBool,
    notify: Notify,
}

impl Drain {
    pub(crate) fn start(&self) {
        self.is_on.store(true, Ordering::SeqCst);
        self.notify.notify_waiters();
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }

    /// Completes when draining starts. Check [`is_on`](Self::is_on) after creating the future:
    /// draining may have started before.
    pub(crate) fn started(&self) -> Notified<'_> {
        self.notify.notified()
    }
}
