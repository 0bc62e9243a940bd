//! Places: where futures are polled, and who watches the time for them there.

/// Where a waiter's future is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pacer) enum Place {
    /// On no runtime that we know timers of.
    Thread,
    /// On this tokio runtime.
    #[cfg(feature = "tokio")]
    Tokio(tokio::runtime::Id),
}

impl Place {
    /// Where this code runs.
    pub(in crate::pacer) fn here() -> Self {
        #[cfg(feature = "tokio")]
        if let Ok(handle) = tokio::runtime::Handle::try_current() {
            return Self::Tokio(handle.id());
        }
        Self::Thread
    }
}

/// Where a waiter, or the holder of leases, is driven, and the number of its driver: to be looked
/// at again with every poll, since a future may move, and runtimes end.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::pacer) struct Post(pub(in crate::pacer) Option<(Place, u64)>);
