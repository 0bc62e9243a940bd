//! Draining: waiting calls are refused, calls at a provider go on.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Whether the gateway drains.
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

    /// Ready when draining starts. Check [`is_on`](Self::is_on) after creating it: draining may have
    /// started in between.
    pub(crate) fn started(&self) -> Notified<'_> {
        self.notify.notified()
    }
}
