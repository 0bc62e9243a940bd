//! Awaiting a question to a store.
//!
//! Most stores are asked over a wire, and the question then has to live in a box beside what it
//! borrows. One that is in this process is not made to pay for that.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A question that some stores answer at once.
pub trait Ask<'a>: Unpin + sealed::Sealed {
    /// What comes of it.
    type Answer;

    #[doc(hidden)]
    fn at_once(&self) -> Option<Self::Answer>;

    #[doc(hidden)]
    fn ask(self) -> Pin<Box<dyn Future<Output = Self::Answer> + Send + 'a>>;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// A question that is awaited. Nothing happens before it is polled, and a store that needs not be
/// waited for answers in the first poll.
#[must_use = "nothing happens until it is awaited"]
pub struct Asking<'a, Q, A> {
    question: Option<Q>,
    answer: Option<Pin<Box<dyn Future<Output = A> + Send + 'a>>>,
}

impl<Q, A> Asking<'_, Q, A> {
    pub(crate) const fn new(question: Q) -> Self {
        Self { question: Some(question), answer: None }
    }
}

impl<'a, Q: Ask<'a>> Future for Asking<'a, Q, Q::Answer> {
    type Output = Q::Answer;

    #[expect(clippy::panic, reason = "polling a future after its end is a mistake of the caller")]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(question) = self.question.take() {
            if let Some(answer) = question.at_once() {
                return Poll::Ready(answer);
            }
            self.answer = Some(question.ask());
        }
        match &mut self.answer {
            Some(answer) => answer.as_mut().poll(cx),
            None => panic!("polled after its end"),
        }
    }
}

impl<Q, A> fmt::Debug for Asking<'_, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("waiting", &self.answer.is_some()).finish_non_exhaustive()
    }
}
