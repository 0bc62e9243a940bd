//! Notifications that wake a driver early, on a runtime or on a thread.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Wakes a driver before its time.
#[derive(Clone, Debug)]
pub(in crate::pacer) enum DriverNotifier {
    Thread(Arc<ThreadNotifier>),
    #[cfg(feature = "tokio")]
    Tokio(Arc<tokio::sync::Notify>, tokio::task::AbortHandle),
}

impl DriverNotifier {
    pub(in crate::pacer) fn notify(&self) {
        match self {
            Self::Thread(notifier) => notifier.notify(),
            #[cfg(feature = "tokio")]
            Self::Tokio(notifier, _) => notifier.notify_one(),
        }
    }
}

/// A notification for a thread: a flag and a condition variable.
#[derive(Debug, Default)]
pub(in crate::pacer) struct ThreadNotifier {
    is_notified: Mutex<bool>,
    condition: Condvar,
}

impl ThreadNotifier {
    pub(in crate::pacer) fn notify(&self) {
        *self.is_notified.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.condition.notify_one();
    }

    /// Waits for a notification, at most `span`. Returns whether there was one.
    pub(in crate::pacer) fn wait(&self, span: Option<Duration>) -> bool {
        let poisoned = PoisonError::into_inner;
        let is_notified = self.is_notified.lock().unwrap_or_else(poisoned);
        let mut is_notified = match span {
            None => self
                .condition
                .wait_while(is_notified, |is_notified| !*is_notified)
                .unwrap_or_else(poisoned),
            Some(span) => {
                let waited = self
                    .condition
                    .wait_timeout_while(is_notified, span, |is_notified| !*is_notified);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        std::mem::take(&mut *is_notified)
    }
}
