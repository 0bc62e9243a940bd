//! The future of a request to a store.
//!
//! A local store answers in the first poll, without an allocation. For a shared store the request
//! moves into a box together with what it borrows.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A request that a local store answers at once and a shared store has to be awaited for.
pub trait StoreRequest<'a>: Unpin + sealed::Sealed {
    /// Result of the request.
    type Output;

    #[doc(hidden)]
    fn is_local(&self) -> bool;

    #[doc(hidden)]
    fn run_local(self) -> Self::Output;

    #[doc(hidden)]
    fn run_shared(self) -> Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// A request that is being awaited. Nothing happens before the first poll.
#[must_use = "nothing happens until the future is awaited"]
pub struct StoreFuture<'a, Q, A> {
    request: Option<Q>,
    answer: Option<Pin<Box<dyn Future<Output = A> + Send + 'a>>>,
}

impl<Q, A> StoreFuture<'_, Q, A> {
    pub(crate) const fn new(request: Q) -> Self {
        Self { request: Some(request), answer: None }
    }
}

impl<'a, Q: StoreRequest<'a>> Future for StoreFuture<'a, Q, Q::Output> {
    type Output = Q::Output;

    #[expect(clippy::panic, reason = "polling a completed future is an error of the caller")]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(request) = self.request.take() {
            if request.is_local() {
                return Poll::Ready(request.run_local());
            }
            self.answer = Some(request.run_shared());
        }
        match &mut self.answer {
            Some(answer) => answer.as_mut().poll(cx),
            None => panic!("future polled after completion"),
        }
    }
}

impl<Q, A> fmt::Debug for StoreFuture<'_, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.answer.is_some();
        f.debug_struct("StoreFuture").field("waiting", &waiting).finish_non_exhaustive()
    }
}
