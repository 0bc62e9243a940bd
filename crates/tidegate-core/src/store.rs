//! The Store contract: operations in, one answer each.
//!
//! A store owns its clock: no operation carries the caller's time. It decides each operation
//! atomically, all-or-nothing over its list, and in the order given. The in-process store is
//! ready at once and allocates nothing for short lists; remote stores return a boxed future.

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
use crate::receipt::{Receipt, ReceiptError};
use crate::time::WallTime;

/// One answer per operation.
pub type Answers = SmallVec<[Result<Answer, StoreError>; 1]>;

/// One thing to do.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// Spend now, or deny and spend nothing.
    Take(&'a [Charge<'a>]),
    /// Say what [`Take`](Self::Take) would say; spend nothing.
    Peek(&'a [Charge<'a>]),
    /// Spend now or at a stated time, not later than the horizon.
    Reserve {
        /// What to spend.
        charges: &'a [Charge<'a>],
        /// How long the caller is willing to wait.
        horizon: Duration,
    },
    /// Correct an earlier spend. Refunds of a reservation that has not started give back only
    /// what nobody has built on.
    Settle {
        /// By how much, where.
        corrections: &'a [Correction<'a>],
        /// The receipt of the spend, with one stamp for each correction.
        receipt: Option<&'a Receipt>,
    },
    /// Give back the slots of a receipt; its tokens stay spent.
    Release {
        /// The charges of the receipt, in their order.
        targets: &'a [Target<'a>],
        /// The receipt.
        receipt: &'a Receipt,
    },
    /// Start the leases of a receipt's slots anew.
    Renew {
        /// The charges of the receipt, in their order.
        targets: &'a [Target<'a>],
        /// The receipt.
        receipt: &'a Receipt,
    },
    /// Close a key for a time. A shorter hold does not shorten a longer one.
    Hold {
        /// Which key.
        target: Target<'a>,
        /// For how long from now.
        span: Duration,
    },
    /// Forget a key: what it spent, its slots and its hold.
    Reset {
        /// Which key.
        target: Target<'a>,
    },
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// Of take, peek and reserve.
    Decision(Decision),
    /// Of settle.
    Settled(Settlement),
    /// Of hold: how long the key is closed from now.
    Held(Duration),
    /// Of reset: whether there was anything to forget.
    Reset(bool),
    /// Of release and renew: how many slots were still held.
    Slots(u64),
}

macro_rules! from_answer {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl TryFrom<Answer> for $type {
            type Error = StoreError;

            #[inline]
            fn try_from(answer: Answer) -> Result<Self, StoreError> {
                match answer {
                    Answer::$variant(value) => Ok(value),
                    _ => Err(StoreError::Unavailable("the store gave the wrong answer".into())),
                }
            }
        }
    )*};
}

from_answer! {
    Decision => Decision,
    Settlement => Settled,
    Duration => Held,
    bool => Reset,
    u64 => Slots,
}

impl From<Infallible> for StoreError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Why an operation was not carried out. Being denied is no error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The caller's list cannot be decided.
    #[error(transparent)]
    Charge(#[from] ChargeError),
    /// The caller's receipt is not usable here.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    /// The request was to be answered at once, and the store is shared.
    #[error("the store is shared and cannot answer at once: await the request")]
    MustAwait,
    /// The store has no room left for a hold or a slot.
    #[error("the store is full")]
    Full,
    /// The store did not answer in time. It may have carried the operation out.
    #[error("the store did not answer in time")]
    TimedOut,
    /// The store works, but cannot carry this operation out: what it has stored for the key is not
    /// of its making, say. Others it can.
    #[error("the store cannot carry this operation out: {0}")]
    Rejected(#[source] Box<dyn Error + Send + Sync>),
    /// The store cannot be reached or cannot work.
    #[error("the store is unavailable: {0}")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

impl StoreError {
    /// Whether the operation itself was wrong, so that sending it again cannot help.
    #[must_use]
    pub const fn is_callers_fault(&self) -> bool {
        matches!(self, Self::Charge(_) | Self::Receipt(_) | Self::MustAwait)
    }
}

/// Where buckets live.
///
/// Implementations pass the conformance suite of the testkit; that suite is the contract.
pub trait Store: Send + Sync + fmt::Debug {
    /// Carries the operations out and pushes one answer for each onto `answers`.
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        answers: &'a mut Answers,
    ) -> Submission<'a>;

    /// The store's wall time, if it can tell without asking a server. Callers compute the
    /// windows of calendar quotas from it; the default lets them use their own.
    fn wall_time(&self) -> Option<WallTime> {
        None
    }

    /// How many nodes were last seen to share this store, this one included; `None` if it is not
    /// shared or nobody knows yet. It answers at once, from what the store has heard so far.
    fn nodes(&self) -> Option<NonZeroU32> {
        None
    }

    /// Finds out whether the store answers at all, spending nothing. The default is a store that
    /// always does.
    fn probe(&self) -> Probe<'_> {
        Box::pin(core::future::ready(Ok(())))
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        answers: &'a mut Answers,
    ) -> Submission<'a> {
        (**self).submit(operations, answers)
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

/// Whether a store answers, under way.
pub type Probe<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

/// Answers under way: already there, or a future to wait for.
#[must_use = "the answers are there once this has been awaited"]
pub enum Submission<'a> {
    /// The answers have been pushed.
    Ready,
    /// The answers will have been pushed when this is done.
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
