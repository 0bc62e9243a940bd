//! Why an acquire gives no permit. Nothing was spent.

use std::time::Duration;

use tidegate_core::StoreError;

/// Why there is no permit. Nothing was spent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The wait would be longer than the caller accepts. Found out at once, without waiting.
    #[error("the wait would be {projected:?}, longer than the {max_wait:?} accepted")]
    TooLong {
        /// How long the wait would be, as far as can be told.
        projected: Duration,
        /// How long the caller accepts.
        max_wait: Duration,
    },
    /// The wait became longer than the caller accepts, for a reason that was not known at first.
    #[error("not granted within {0:?}")]
    TimedOut(Duration),
    /// It would have to wait, nobody can tell how long, and was not to.
    #[error("it would have to wait")]
    WouldWait,
    /// There is neither a runtime nor a thread to watch the time.
    #[error("no thread can be started to watch the time")]
    NoDriver,
    /// So many wait already that nobody else may.
    #[error("{0} wait already")]
    QueueFull(usize),
    /// The cost is above what the limit ever allows.
    #[error("the cost is above the capacity of limit {0:?} and never fits")]
    NeverFits(String),
    /// A charge is on a limiter of another engine than the pacer's.
    #[error("the charges are on limiters of another engine than the pacer")]
    OtherStore,
    /// A shared store is asked by tasks, and this is not a tokio runtime.
    #[error("a pacer on a shared store waits inside a tokio runtime only")]
    NoRuntime,
    /// A shared store does not answer at once.
    #[error("the store of this pacer is a shared one: await the permit")]
    NotAtOnce,
    /// The store cannot decide: it is not available, or the list is wrong.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AcquireError {
    /// How long to wait before trying again, if that is known.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooLong { projected, .. } => Some(*projected),
            _ => None,
        }
    }
}
