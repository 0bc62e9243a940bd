//! A request to a store: described once, carried out now or awaited.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;

use tidegate_core::{Answer, Answers, Decision, Operation, Settlement, Store, StoreError};
use tidegate_memory::MemoryStore;

/// What a verb of [`Limiter`](crate::Limiter) or [`Engine`](crate::Engine) asks of a store.
///
/// Nothing happens until it is carried out: by [`now`](Self::now) on the in-process store, by
/// `.await` on any store.
///
/// ```
/// use tidegate::{Limiter, Policy};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(Policy::per_second(10).build()?);
/// assert!(limiter.take("alice").now().is_allowed());
/// assert!(limiter.take("alice").await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens until the request is awaited, or carried out with `now`"]
pub struct Request<'a, S: ?Sized, T> {
    store: &'a S,
    call: Call<'a>,
    answer: PhantomData<fn() -> T>,
}

/// An operation that owns the single charge, correction or target it may consist of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call<'a> {
    Ready(Operation<'a>),
    Take(tidegate_core::Charge<'a>),
    Peek(tidegate_core::Charge<'a>),
    Reserve(tidegate_core::Charge<'a>, std::time::Duration),
    Settle(tidegate_core::Correction<'a>, Option<&'a tidegate_core::Receipt>),
}

impl Call<'_> {
    fn operation(&self) -> Operation<'_> {
        let one = std::slice::from_ref;
        match self {
            Self::Ready(operation) => *operation,
            Self::Take(charge) => Operation::Take(one(charge)),
            Self::Peek(charge) => Operation::Peek(one(charge)),
            Self::Reserve(charge, horizon) => {
                Operation::Reserve { charges: one(charge), horizon: *horizon }
            }
            Self::Settle(correction, receipt) => Operation::Settle {
                corrections: std::slice::from_ref(correction),
                receipt: *receipt,
            },
        }
    }
}

impl<'a, S: ?Sized, T> Request<'a, S, T> {
    pub(crate) fn new(store: &'a S, call: Call<'a>) -> Self {
        Self { store, call, answer: PhantomData }
    }
}

impl<S: ?Sized> Request<'_, S, Decision> {
    /// With another cost than one token. Zero reports the state and is never denied.
    ///
    /// It has no effect on a list, whose charges have their own costs.
    pub fn cost(mut self, tokens: u64) -> Self {
        match &mut self.call {
            Call::Take(charge) | Call::Peek(charge) | Call::Reserve(charge, _) => {
                charge.cost = tokens;
            }
            Call::Ready(_) | Call::Settle(..) => {}
        }
        self
    }
}

impl Request<'_, MemoryStore, Decision> {
    /// Decides at once.
    ///
    /// # Panics
    /// When the request is a list that is empty or longer than [`MAX_CHARGES`](crate::MAX_CHARGES),
    /// or a charge on a calendar quota without windows: mistakes of the program, not of its data.
    /// [`try_now`](Self::try_now) reports them instead.
    #[expect(clippy::panic, reason = "documented; try_now is the fallible way")]
    pub fn now(self) -> Decision {
        match self.try_now() {
            Ok(decision) => decision,
            Err(error) => panic!("{error}"),
        }
    }
}

impl<T: FromAnswer> Request<'_, MemoryStore, T> {
    /// Carries the request out at once.
    ///
    /// # Errors
    /// When the list or the receipt is wrong, or there is no room for a hold or a slot.
    pub fn try_now(self) -> Result<T, StoreError> {
        self.store.execute(&self.call.operation()).and_then(T::from_answer)
    }
}

impl<'a, S, T> IntoFuture for Request<'a, S, T>
where
    S: Store + ?Sized,
    T: FromAnswer + 'a,
{
    type Output = Result<T, StoreError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { store, call, .. } = self;
        Box::pin(async move {
            let mut answers = Answers::new();
            store.submit(&[call.operation()], &mut answers).await;
            let missing = || StoreError::Unavailable("the store gave no answer".into());
            answers.pop().unwrap_or_else(|| Err(missing())).and_then(T::from_answer)
        })
    }
}

impl<S: ?Sized, T> fmt::Debug for Request<'_, S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Request").field(&self.call).finish()
    }
}

/// The answers that requests give.
pub trait FromAnswer: sealed::Sealed + Sized {
    #[doc(hidden)]
    fn from_answer(answer: Answer) -> Result<Self, StoreError>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! from_answer {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl sealed::Sealed for $type {}
        impl FromAnswer for $type {
            fn from_answer(answer: Answer) -> Result<Self, StoreError> {
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
    std::time::Duration => Held,
    bool => Reset,
    u64 => Slots,
}
