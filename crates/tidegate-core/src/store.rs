//! The contract between the engine and a store: operations in, one response each.
//!
//! A store owns its clock: no operation carries the caller's time. It executes the operations in
//! order, each atomically and all-or-nothing over its list. The in-process store completes
//! immediately and does not allocate for short lists; remote stores return a boxed future.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::convert::Infallible;
use core::error::Error;
use core::fmt;
use core::future::Future;
use core::num::NonZeroU32;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use smallvec::SmallVec;

use crate::charge::{Charge, ChargeError, Correction, Target};
use crate::decision::{Decision, Settlement};
use crate::limit::{Limit, LimitError};
use crate::receipt::{Receipt, ReceiptError};
use crate::take_store::Unsupported;
use crate::time::WallTime;

/// One response per operation.
pub type StoreResponses = SmallVec<[Result<StoreResponse, StoreError>; 1]>;

/// A request to a store.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// Spend now, or deny and spend nothing.
    Take(&'a [Charge<'a>]),
    /// Report what [`Take`](Self::Take) would decide; spend nothing.
    Peek(&'a [Charge<'a>]),
    /// Spend now or at a later instant within the horizon, or deny.
    Reserve {
        /// Charges to spend.
        charges: &'a [Charge<'a>],
        /// Maximum wait the caller accepts.
        horizon: Duration,
    },
    /// Correct earlier charges. The refund of a reservation that has not started excludes what
    /// later reservations depend on.
    Settle {
        /// Corrections, one per bucket charged.
        corrections: &'a [Correction<'a>],
        /// Receipt of the charges, with one stamp per correction.
        receipt: Option<&'a Receipt>,
    },
    /// Release the slots of a receipt. Its tokens stay spent.
    Release {
        /// Targets of the receipt's charges, in the same order.
        targets: &'a [Target<'a>],
        /// The receipt.
        receipt: &'a Receipt,
    },
    /// Renew the leases of a receipt's slots.
    Renew {
        /// Targets of the receipt's charges, in the same order.
        targets: &'a [Target<'a>],
        /// The receipt.
        receipt: &'a Receipt,
    },
    /// Close a key for a time. A shorter hold does not shorten an existing longer one.
    Hold {
        /// The key to close.
        target: Target<'a>,
        /// How long to close it, from now.
        span: Duration,
    },
    /// Forget a key: its usage, its slots and its hold.
    Reset {
        /// The key to forget.
        target: Target<'a>,
    },
}

/// Result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreResponse {
    /// Result of take, peek and reserve.
    Decision(Decision),
    /// Result of settle.
    Settled(Settlement),
    /// Result of hold: how long the key stays closed from now.
    HeldFor(Duration),
    /// Result of reset: whether there was anything to forget.
    Reset(bool),
    /// Result of release and renew: how many slots were still held.
    Slots(u64),
}

macro_rules! from_response {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl TryFrom<StoreResponse> for $type {
            type Error = StoreError;

            #[inline]
            fn try_from(response: StoreResponse) -> Result<Self, StoreError> {
                match response {
                    StoreResponse::$variant(value) => Ok(value),
                    _ => Err(StoreError::Unavailable("the store returned a response of the wrong kind".into())),
                }
            }
        }
    )*};
}

from_response! {
    Decision => Decision,
    Settlement => Settled,
    Duration => HeldFor,
    bool => Reset,
    u64 => Slots,
}

impl From<Infallible> for StoreError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Error executing an operation. A denial is not an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The list of charges is invalid.
    #[error(transparent)]
    Charge(#[from] ChargeError),
    /// The receipt is invalid or belongs to another store.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    /// The store does not implement the operation.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A synchronous call was made on a shared store.
    #[error("the store is shared and cannot respond synchronously; await the request")]
    MustAwait,
    /// The store has no room for another hold or slot lease.
    #[error("the store has no room for another hold or slot lease; retry later")]
    Full,
    /// The store did not respond in time. The operation may have been executed.
    #[error("the store did not respond in time")]
    TimedOut,
    /// The store works but cannot execute this operation, for example because the stored value of
    /// the key was not written by Tidegate. Other operations may succeed.
    #[error("the store cannot execute this operation: {0}")]
    Rejected(#[source] Box<dyn Error + Send + Sync>),
    /// The store cannot be reached or does not work.
    #[error("the store is unavailable: {0}")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

impl StoreError {
    /// Returns whether the operation itself was wrong, so that retrying it cannot help.
    #[must_use]
    pub const fn is_caller_error(&self) -> bool {
        matches!(self, Self::Charge(_) | Self::Receipt(_) | Self::Unsupported(_) | Self::MustAwait)
    }
}

/// Storage for buckets. To store token buckets only, implement [`TakeStore`](crate::TakeStore).
///
/// Implementations must pass the conformance suite of `tidegate-testkit`.
pub trait Store: Send + Sync + fmt::Debug {
    /// Executes the operations and pushes one response for each onto `responses`.
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        responses: &'a mut StoreResponses,
    ) -> Submission<'a>;

    /// Checks whether the store can decide a limit. An engine asks before it creates a limit or
    /// changes its policy. By default, every limit is accepted.
    ///
    /// # Errors
    /// If the store can never decide it; see [`Unsupported`].
    fn check_limit(&self, _limit: &Limit) -> Result<(), LimitError> {
        Ok(())
    }

    /// Returns the store's wall time, if it is known without a request to a server. Callers compute
    /// the windows of calendar quotas from it. With the default, `None`, they use their own clock.
    fn wall_time(&self) -> Option<WallTime> {
        None
    }

    /// Returns how many nodes were last seen to share this store, including this one; `None` if it
    /// is not shared or the number is not known yet. Does not block.
    fn nodes(&self) -> Option<NonZeroU32> {
        None
    }

    /// Checks whether the store responds, spending nothing. The default implementation always
    /// succeeds.
    fn probe(&self) -> Probe<'_> {
        Box::pin(core::future::ready(Ok(())))
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        responses: &'a mut StoreResponses,
    ) -> Submission<'a> {
        (**self).submit(operations, responses)
    }

    fn check_limit(&self, limit: &Limit) -> Result<(), LimitError> {
        (**self).check_limit(limit)
    }

    fn wall_time(&self) -> Option<WallTime> {
        (**self).wall_time()
    }

    fn nodes(&self) -> Option<NonZeroU32> {
        (**self).nodes()
    }

    fn probe(&self) -> Probe<'_> {
        (**self).probe()
    }
}

/// Future of [`Store::probe`].
pub type Probe<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

/// Result of [`Store::submit`]: complete already, or a future to await.
#[must_use = "await this to get the responses"]
pub enum Submission<'a> {
    /// All responses have been pushed.
    Ready,
    /// All responses will have been pushed when the future completes.
    Pending(Pin<Box<dyn Future<Output = ()> + Send + 'a>>),
}

impl Future for Submission<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self {
            Self::Ready => Poll::Ready(()),
            Self::Pending(future) => future.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for Submission<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "Submission::Ready",
            Self::Pending(_) => "Submission::Pending",
        })
    }
}
