//! Errors of an acquire. Nothing was spent.

use std::time::Duration;

use tidegate_core::StoreError;

/// Why there is no permit. Nothing was spent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The wait would be longer than the caller accepts. Returned at once, without waiting.
    #[error("the projected wait is {projected:?}, longer than the maximum of {max_wait:?}")]
    TooLong {
        /// The projected wait.
        projected: Duration,
        /// The longest wait that the caller accepts.
        max_wait: Duration,
    },
    /// The wait became longer than the caller accepts, for a reason that was not known at first.
    #[error("no permit within the maximum wait of {0:?}")]
    TimedOut(Duration),
    /// It would have to wait, for an unknown time, but was not allowed to.
    #[error("no permit is available without waiting")]
    WouldWait,
    /// No driver can be started: there is no runtime, and the thread could not be spawned.
    #[error("cannot spawn the timer thread of the pacer")]
    NoDriver,
    /// The queue is full: the number of waiters.
    #[error("the queue is full: {0} requests are waiting")]
    QueueFull(usize),
    /// The cost exceeds what the limit ever allows.
    #[error("the cost exceeds the capacity of limit {0:?} and can never be granted")]
    NeverFits(String),
    /// A charge is on a limiter of another engine than the pacer's.
    #[error(
        "a charge is on a limiter of another engine; create the limiter and the pacer with one engine"
    )]
    OtherEngine,
    /// A pacer on a shared store was used outside a tokio runtime.
    #[error("a pacer on a shared store can be used only in a tokio runtime")]
    NoRuntime,
    /// A shared store cannot grant a permit at once.
    #[error("the store of this pacer is shared: await the permit")]
    MustAwait,
    /// The store cannot decide: it is unavailable, or the list is invalid.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AcquireError {
    /// How long to wait before a retry, if known.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooLong { projected, .. } => Some(*projected),
            _ => None,
        }
    }
}
