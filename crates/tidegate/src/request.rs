//! A request to a store: described once, carried out now or awaited.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use tidegate_core::{
    Answer, Answers, Charge, Correction, Decision, Denial, Key, Operation, Outcome, Receipt, Retry,
    Settlement, Store, StoreError, WallTime,
};
use tidegate_memory::MemoryStore;

use crate::asking::{Ask, Asking};
use crate::pacer::project;
use crate::terms::{Snapshot, Terms};

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

/// What to do, described so that a limiter's policy is read when it is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call<'a> {
    /// A list, with policies that the caller holds.
    List(Operation<'a>),
    /// One key of a limiter, under the policy of the moment.
    One { terms: &'a Terms, key: Key<'a>, wall: WallTime, verb: Verb<'a> },
}

/// The verbs for a single key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb<'a> {
    Take(u64),
    Peek(u64),
    Reserve(u64, Duration),
    Settle(i64, Option<&'a Receipt>),
    Hold(Duration),
    Reset,
}

impl<'a> Call<'a> {
    /// The policy to go by, read now.
    fn snapshot(&self) -> Option<Snapshot> {
        match self {
            Self::List(_) => None,
            Self::One { terms, wall, .. } => Some(terms.snapshot(*wall)),
        }
    }

    /// The same call, or a look at the state alone if it would overtake waiters.
    fn or_look(self, behind: Option<(u128, u64)>) -> Self {
        match (self, behind) {
            (Self::One { terms, key, wall, .. }, Some(_)) => {
                Self::One { terms, key, wall, verb: Verb::Peek(0) }
            }
            (call, _) => call,
        }
    }

    /// For a plain take, and what a peek says of it: how many tokens of its key others wait for,
    /// and its own cost.
    fn behind(&self) -> Option<(u128, u64)> {
        match *self {
            Self::One { terms, key, verb: Verb::Take(cost) | Verb::Peek(cost), .. } if cost > 0 => {
                Some((terms.queued().ahead_of(key)?, cost))
            }
            _ => None,
        }
    }

    /// The operation under a policy that was read before.
    fn under<'s>(self, snapshot: Option<&'s Snapshot>) -> Parts<'s>
    where
        'a: 's,
    {
        let (key, verb, snapshot) = match (self, snapshot) {
            (Self::One { key, verb, .. }, Some(snapshot)) => (key, verb, snapshot),
            (Self::List(operation), _) => return Parts::Whole(operation),
            (Self::One { .. }, None) => return Parts::Whole(Operation::Take(&[])),
        };
        let target = snapshot.target(key);
        match verb {
            Verb::Take(cost) => Parts::Take([Charge { target, cost }]),
            Verb::Peek(cost) => Parts::Peek([Charge { target, cost }]),
            Verb::Reserve(cost, horizon) => Parts::Reserve([Charge { target, cost }], horizon),
            Verb::Settle(delta, receipt) => Parts::Settle([Correction { target, delta }], receipt),
            Verb::Hold(span) => Parts::Whole(Operation::Hold { target, span }),
            Verb::Reset => Parts::Whole(Operation::Reset { target }),
        }
    }
}

/// A call on its way: with the policy of this moment, and who waits before it.
struct Asked<'a> {
    call: Call<'a>,
    snapshot: Option<Snapshot>,
    behind: Option<(u128, u64)>,
}

impl<'a> Asked<'a> {
    fn of(call: Call<'a>) -> Self {
        let behind = call.behind();
        Self { call: call.or_look(behind), snapshot: call.snapshot(), behind }
    }

    fn parts(&self) -> Parts<'_> {
        self.call.under(self.snapshot.as_ref())
    }

    fn answered<T: FromAnswer>(&self, answer: Result<Answer, StoreError>) -> Result<T, StoreError> {
        let answer = match self.behind {
            Some(behind) => overtaking(self.snapshot.as_ref(), answer, behind),
            None => answer,
        };
        answer.and_then(T::from_answer)
    }
}

/// The denial of a plain take that would overtake waiters, with the wait that they leave to it.
fn overtaking(
    snapshot: Option<&Snapshot>,
    state: Result<Answer, StoreError>,
    (ahead, cost): (u128, u64),
) -> Result<Answer, StoreError> {
    let decision = state.and_then(Decision::from_answer)?;
    let (Some(snapshot), Some(outcome)) = (snapshot, decision.outcomes().first()) else {
        return Ok(Answer::Decision(decision));
    };
    let tokens = ahead.saturating_add(cost.into());
    let wait = match snapshot.limit().policy() {
        policy if cost > policy.capacity() => None,
        policy => project(policy, outcome, tokens),
    };
    let retry = match wait {
        Some(wait) if !wait.is_zero() => Retry::After(wait),
        Some(_) => Retry::OnRelease,
        None => Retry::Never,
    };
    let outcome = Outcome::new(outcome.capacity, outcome.remaining, outcome.reset, Some(retry));
    let denial = Denial::new(smallvec::smallvec![outcome]);
    Ok(Answer::Decision(Decision::Denied(match decision.degraded() {
        Some(rule) => denial.degraded(rule),
        None => denial,
    })))
}

/// An operation together with the list of one that it borrows.
enum Parts<'s> {
    Whole(Operation<'s>),
    Take([Charge<'s>; 1]),
    Peek([Charge<'s>; 1]),
    Reserve([Charge<'s>; 1], Duration),
    Settle([Correction<'s>; 1], Option<&'s Receipt>),
}

impl Parts<'_> {
    fn operation(&self) -> Operation<'_> {
        match self {
            Self::Whole(operation) => *operation,
            Self::Take(charges) => Operation::Take(charges),
            Self::Peek(charges) => Operation::Peek(charges),
            Self::Reserve(charges, horizon) => Operation::Reserve { charges, horizon: *horizon },
            Self::Settle(corrections, receipt) => {
                Operation::Settle { corrections, receipt: *receipt }
            }
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
        let asked = Asked::of(self.call);
        let answer = self.store.execute(&asked.parts().operation());
        asked.answered(answer)
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
        let asked = Asked::of(self.call);
        let answer = self.store.execute_now(&asked.parts().operation())?;
        Some(asked.answered(answer))
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
            let asked = Asked::of(call);
            let answer = ask(store, asked.parts().operation()).await;
            asked.answered(answer)
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
    let missing = || StoreError::Unavailable("the store gave no answer".into());
    answers.pop().unwrap_or_else(|| Err(missing()))
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
    Duration => Held,
    bool => Reset,
    u64 => Slots,
}
