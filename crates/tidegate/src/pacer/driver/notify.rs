//! Notifications that wake a driver early, on a runtime or on a thread.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Wakes a driver before its time.
#[derive(Clone, Debug)]
pub(in crate::pacer) enum Bell {
    Thread(Arc<ThreadBell>),
    #[cfg(feature = "tokio")]
    Tokio(Arc<tokio::sync::Notify>, tokio::task::AbortHandle),
}

impl Bell {
    pub(in crate::pacer) fn ring(&self) {
        match self {
            Self::Thread(bell) => bell.ring(),
            #[cfg(feature = "tokio")]
            Self::Tokio(bell, _) => bell.notify_one(),
        }
    }
}

/// A notification for a thread: a flag and a condition variable.
#[derive(Debug, Default)]
pub(in crate::pacer) struct ThreadBell {
    rung: Mutex<bool>,
    condition: Condvar,
}

impl ThreadBell {
    pub(in crate::pacer) fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.condition.notify_one();
    }

    pub(in crate::pacer) fn wait(&self, span: Option<Duration>) {
        let poisoned = PoisonError::into_inner;
        let rung = self.rung.lock().unwrap_or_else(poisoned);
        let mut rung = match span {
            None => self.condition.wait_while(rung, |rung| !*rung).unwrap_or_else(poisoned),
            Some(span) => {
                let waited = self.condition.wait_timeout_while(rung, span, |rung| !*rung);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        *rung = false;
    }
}
