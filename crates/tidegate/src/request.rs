//! A request to a store: described once, then run at once or awaited.

pub(crate) mod batch;
mod deferred;
pub(crate) mod store_future;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;

use tidegate_core::{Decision, StoreError, StoreResponse};

use crate::store_handle::StoreHandle;
use store_future::{StoreFuture, StoreRequest};

pub(crate) use deferred::{
    DeferredOperation, ListVerb, OperationBuf, PreparedOperation, Snapshots, Verb,
};

/// A request to a store, made by a method of [`Limiter`](crate::Limiter) or
/// [`Engine`](crate::Engine).
///
/// Nothing happens until it runs: with [`now`](Self::now) on the in-process store, or with `.await`
/// on any store.
///
/// ```
/// use tidegate::{Limiter, Policy};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(Policy::per_second(10).build()?);
/// assert!(limiter.take("alice").now()?.is_allowed());
/// assert!(limiter.take("alice").await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens until the request is awaited, or run with `now`"]
pub struct Request<'a, T> {
    store: &'a StoreHandle,
    deferred: DeferredOperation<'a>,
    answer: PhantomData<fn() -> T>,
}

impl<'a, T> Request<'a, T> {
    pub(crate) const fn new(store: &'a StoreHandle, deferred: DeferredOperation<'a>) -> Self {
        Self { store, deferred, answer: PhantomData }
    }

    /// Converts the request to one with an answer of any type, so that requests of different kinds
    /// can go into one [`Batch`](crate::Batch).
    pub fn into_any(self) -> Request<'a, StoreResponse> {
        Request::new(self.store, self.deferred)
    }

    pub(crate) fn into_parts(self) -> (&'a StoreHandle, DeferredOperation<'a>) {
        (self.store, self.deferred)
    }
}

impl Request<'_, Decision> {
    /// Sets the cost, which is one token by default. A cost of zero reports the state and is never
    /// denied.
    ///
    /// Has no effect on a list: its charges have their own costs.
    pub fn cost(mut self, tokens: u64) -> Self {
        if let DeferredOperation::One {
            verb: Verb::Take(cost) | Verb::Peek(cost) | Verb::Reserve(cost, _),
            ..
        } = &mut self.deferred
        {
            *cost = tokens;
        }
        self
    }
}

impl<T: FromAnswer> Request<'_, T> {
    /// Runs the request at once, on the in-process store.
    ///
    /// # Errors
    /// When a key, the list or the receipt is invalid, when the store has no space for a hold or a
    /// slot, or when the store is shared and has to be awaited. On the in-process store, a `take`
    /// of a [`Limiter`](crate::Limiter) with a valid key never fails.
    #[inline]
    pub fn now(self) -> Result<T, StoreError> {
        let store = self.store.local().ok_or(StoreError::MustAwait)?;
        if let Some(decision) = self.deferred.take_fast(store) {
            return T::from_answer(StoreResponse::Decision(decision));
        }
        let (prepared, snapshots) =
            (PreparedOperation::new(&self.deferred, self.store), self.deferred.snapshots());
        let answer = store.execute(&prepared.operation_buf(&snapshots).operation());
        prepared.resolve(&snapshots, answer)
    }
}

impl<'a, T: FromAnswer + 'a> IntoFuture for Request<'a, T> {
    type Output = Result<T, StoreError>;
    type IntoFuture = StoreFuture<'a, Self, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        StoreFuture::new(self)
    }
}

impl<T> store_future::sealed::Sealed for Request<'_, T> {}

impl<'a, T: FromAnswer + 'a> StoreRequest<'a> for Request<'a, T> {
    type Output = Result<T, StoreError>;

    fn is_local(&self) -> bool {
        self.store.local().is_some()
    }

    fn run_local(self) -> Self::Output {
        self.now()
    }

    fn run_shared(self) -> Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>> {
        let Self { store, deferred, .. } = self;
        Box::pin(async move {
            let (prepared, snapshots) =
                (PreparedOperation::new(&deferred, store), deferred.snapshots());
            let answer = store.execute(prepared.operation_buf(&snapshots).operation()).await;
            prepared.resolve(&snapshots, answer)
        })
    }
}

impl<T> fmt::Debug for Request<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Request").field(&self.deferred).finish()
    }
}

/// Types that a request can return: one kind of answer, or [`StoreResponse`] for any.
pub trait FromAnswer: Sized {
    /// Converts an answer of any kind to this one.
    fn from_answer(answer: StoreResponse) -> Result<Self, StoreError>;
}

impl<T: TryFrom<StoreResponse, Error: Into<StoreError>>> FromAnswer for T {
    #[inline]
    fn from_answer(answer: StoreResponse) -> Result<Self, StoreError> {
        answer.try_into().map_err(Into::into)
    }
}
