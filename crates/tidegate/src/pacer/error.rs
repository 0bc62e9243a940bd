//! Errors of an acquire. Nothing was spent.

use std::time::Duration;

use tidegate_core::StoreError;

/// Why there is no permit. Nothing was spent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The wait would be longer than the caller accepts. Returned at once, without waiting.
    #[error("the wait would be {projected:?}, longer than the {max_wait:?} accepted")]
    TooLong {
        /// The projected wait.
        projected: Duration,
        /// The longest wait that the caller accepts.
        max_wait: Duration,
    },
    /// The wait became longer than the caller accepts, for a reason that was not known at first.
    #[error("not granted within {0:?}")]
    TimedOut(Duration),
    /// It would have to wait, for an unknown time, but was not allowed to.
    #[error("it would have to wait")]
    WouldWait,
    /// No driver can be started: there is no runtime, and the thread could not be spawned.
    #[error("no thread can be started to watch the time")]
    NoDriver,
    /// The queue is full: the number of waiters.
    #[error("{0} wait already")]
    QueueFull(usize),
    /// The cost exceeds what the limit ever allows.
    #[error("the cost is above the capacity of limit {0:?} and never fits")]
    NeverFits(String),
    /// A charge is on a limiter of another engine than the pacer's.
    #[error("the charges are on limiters of another engine than the pacer")]
    OtherStore,
    /// A pacer on a shared store was used outside a tokio runtime.
    #[error("a pacer on a shared store waits inside a tokio runtime only")]
    NoRuntime,
    /// A shared store cannot grant a permit at once.
    #[error("the store of this pacer is a shared one: await the permit")]
    NotAtOnce,
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
