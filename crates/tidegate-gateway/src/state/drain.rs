//! The end of a gateway: whoever waits is sent away, whoever was sent goes on.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Whether the gateway is about to end.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    is_on: AtomicBool,
    bell: Notify,
}

impl Drain {
    pub(crate) fn begin(&self) {
        self.is_on.store(true, Ordering::SeqCst);
        self.bell.notify_waiters();
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }

    /// Ready when it begins. Whoever waits for it looks whether it has begun afterwards: it may
    /// have, in between.
    pub(crate) fn begun(&self) -> Notified<'_> {
        self.bell.notified()
    }
}
