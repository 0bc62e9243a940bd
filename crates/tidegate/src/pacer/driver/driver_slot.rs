//! Where futures are polled, and which driver serves them there.

/// Where a waiter's future is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pacer) enum Executor {
    /// Outside any runtime with known timers.
    Thread,
    /// On this tokio runtime.
    #[cfg(feature = "tokio")]
    Tokio(tokio::runtime::Id),
}

impl Executor {
    /// The executor of the calling thread.
    pub(in crate::pacer) fn current() -> Self {
        #[cfg(feature = "tokio")]
        if let Ok(handle) = tokio::runtime::Handle::try_current() {
            return Self::Tokio(handle.id());
        }
        Self::Thread
    }
}

/// The driver of a waiter or of a holder of leases: its executor and number. Checked with every
/// poll, because a future may move and a runtime may end.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::pacer) struct DriverSlot(pub(in crate::pacer) Option<(Executor, u64)>);
