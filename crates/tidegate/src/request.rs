//! A request to a store: described once, carried out now or awaited.

mod call;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use tidegate_core::{Answer, Answers, Decision, Operation, Settlement, Store, StoreError};
use tidegate_memory::MemoryStore;

use crate::asking::{Ask, Asking};

pub(crate) use call::{Asked, Call, Parts, Verb};

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

impl<'a, S: ?Sized, T> Request<'a, S, T> {
    pub(crate) fn new(store: &'a S, call: Call<'a>) -> Self {
        Self { store, call, answer: PhantomData }
    }

    /// The same request with an answer of any kind, to go into one [`Batch`](crate::Batch) with
    /// requests of other verbs.
    pub fn any(self) -> Request<'a, S, Answer> {
        Request::new(self.store, self.call)
    }

    pub(crate) const fn into_parts(self) -> (&'a S, Call<'a>) {
        (self.store, self.call)
    }
}

impl<S: ?Sized> Request<'_, S, Decision> {
    /// With another cost than one token. Zero reports the state and is never denied.
    ///
    /// It has no effect on a list, whose charges have their own costs.
    pub fn cost(mut self, tokens: u64) -> Self {
        if let Call::One {
            verb: Verb::Take(cost) | Verb::Peek(cost) | Verb::Reserve(cost, _),
            ..
        } = &mut self.call
        {
            *cost = tokens;
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
        if let Some(decision) = self.call.take_plain(self.store) {
            return decision;
        }
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
        let (asked, terms) = Asked::with_snapshot(self.call);
        let answer = self.store.execute(&asked.parts(terms.as_ref()).operation());
        asked.answered(terms.as_ref(), answer)
    }
}

impl<S: Store + ?Sized, T: FromAnswer> Request<'_, S, T> {
    /// Carries the request out now if the store can without waiting for anything; else nothing
    /// has happened, and `.await` is the way.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::{Engine, MemoryStore, Policy, Store};
    /// let engine: Engine<dyn Store> = Engine::on(Arc::new(MemoryStore::new()));
    /// let limiter = engine.limiter("api", Policy::per_second(2).build()?)?;
    /// let decision = limiter.take("alice").at_once().expect("this store never waits")?;
    /// assert!(decision.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn at_once(&self) -> Option<Result<T, StoreError>> {
        let (asked, terms) = Asked::with_snapshot(self.call);
        let answer = self.store.execute_now(&asked.parts(terms.as_ref()).operation())?;
        Some(asked.answered(terms.as_ref(), answer))
    }
}

impl<'a, S, T> IntoFuture for Request<'a, S, T>
where
    S: Store + ?Sized,
    T: FromAnswer + 'a,
{
    type Output = Result<T, StoreError>;
    type IntoFuture = Asking<'a, Self, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Asking::new(self)
    }
}

impl<S: ?Sized, T> crate::asking::sealed::Sealed for Request<'_, S, T> {}

impl<'a, S, T> Ask<'a> for Request<'a, S, T>
where
    S: Store + ?Sized,
    T: FromAnswer + 'a,
{
    type Answer = Result<T, StoreError>;

    fn at_once(&self) -> Option<Self::Answer> {
        Request::at_once(self)
    }

    fn ask(self) -> Pin<Box<dyn Future<Output = Self::Answer> + Send + 'a>> {
        let Self { store, call, .. } = self;
        Box::pin(async move {
            let (asked, terms) = Asked::with_snapshot(call);
            let answer = ask(store, asked.parts(terms.as_ref()).operation()).await;
            asked.answered(terms.as_ref(), answer)
        })
    }
}

impl<S: ?Sized, T> fmt::Debug for Request<'_, S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Request").field(&self.call).finish()
    }
}

/// Asks a store one thing.
pub(crate) async fn ask<S: Store + ?Sized>(
    store: &S,
    operation: Operation<'_>,
) -> Result<Answer, StoreError> {
    let mut answers = Answers::new();
    store.submit(&[operation], &mut answers).await;
    answers.pop().unwrap_or_else(|| Err(no_answer()))
}

/// What is said of an operation that the store has left out.
pub(crate) fn no_answer() -> StoreError {
    StoreError::Unavailable("the store gave no answer".into())
}

/// The answers that requests give.
pub trait FromAnswer: sealed::Sealed + Sized {
    /// This kind of answer out of one of any kind, as a [`Batch`](crate::Batch) of different verbs
    /// gives it.
    ///
    /// # Errors
    /// When it is another kind.
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

impl sealed::Sealed for Answer {}
impl FromAnswer for Answer {
    fn from_answer(answer: Answer) -> Result<Self, StoreError> {
        Ok(answer)
    }
}

from_answer! {
    Decision => Decision,
    Settlement => Settled,
    Duration => Held,
    bool => Reset,
    u64 => Slots,
}
