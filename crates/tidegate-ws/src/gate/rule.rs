//! One limit of a gate: which limiter, whose bucket, at what cost, for which messages.
//!
//! A rule knows no policy: capacity and rate are the limiter's, and can change while the gate is
//! in use.

use std::fmt;

use tidegate::Limiter;

use crate::context::{Identity, IngressContext};
use crate::key::{KeyParts, default_key};

type KeyFn<D> = dyn for<'a> Fn(&IngressContext<'a, D>) -> KeyParts<'a> + Send + Sync;
type CostFn<D> = dyn Fn(&IngressContext<'_, D>) -> i64 + Send + Sync;
type Condition<D> = dyn Fn(&IngressContext<'_, D>) -> bool + Send + Sync;

/// One limit of a gate.
///
/// Without more it charges one token to the user's bucket for the type of the message; a client
/// whose user is not known is charged by address, and one without both by connection.
///
/// ```
/// use tidegate::{Engine, Policy};
/// use tidegate_ws::{Gate, KeyParts, Rule};
/// # struct Session { premium: bool }
/// # impl tidegate_ws::Identity for Session {}
/// let engine = Engine::new();
/// let free = engine.limiter("free", Policy::per_second(10).capacity(100).build()?)?;
/// let premium = engine.limiter("premium", Policy::per_second(100).capacity(1_000).build()?)?;
/// let shared = engine.limiter("all", Policy::per_second(100_000).build()?)?;
///
/// let gate = Gate::for_types(["SendMessage", "Compute"])
///     .limit(Rule::<Session>::new(premium).when(|context| context.data().premium).otherwise(free))
///     .limit(
///         Rule::new(shared)
///             .key(|_| KeyParts::from(["rl", "all"]))
///             .cost(|context| if context.message_type() == "Compute" { 10 } else { 1 }),
///     )
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a rule does nothing until a gate has it"]
pub struct Rule<D> {
    limiter: Limiter,
    key: Box<KeyFn<D>>,
    cost: Option<Box<CostFn<D>>>,
    condition: Option<Box<Condition<D>>>,
    otherwise: Option<Box<Self>>,
    /// Where the limiter stands among those of the gate.
    pub(crate) seat: usize,
}

impl<D: Identity> Rule<D> {
    /// The rule of a limiter, in process or on any store.
    pub fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            key: Box::new(default_key),
            cost: None,
            condition: None,
            otherwise: None,
            seat: 0,
        }
    }

    /// Charges another bucket. Keep keys few: one with the time or a message's id in it is a new,
    /// full bucket with every message, and limits nothing.
    pub fn key(
        mut self,
        key: impl for<'a> Fn(&IngressContext<'a, D>) -> KeyParts<'a> + Send + Sync + 'static,
    ) -> Self {
        self.key = Box::new(key);
        self
    }

    /// Charges another cost than one token. A cost below 1 is refused when it comes, with
    /// `INVALID_ARGUMENT`, and nothing is spent.
    ///
    /// Costs weigh messages inside one policy. They isolate nothing: see
    /// [`per_user_key`](crate::per_user_key). For parts of a token, count in smaller units: a
    /// policy in thousandths, and costs of 500.
    pub fn cost(
        mut self,
        cost: impl Fn(&IngressContext<'_, D>) -> i64 + Send + Sync + 'static,
    ) -> Self {
        self.cost = Some(Box::new(cost));
        self
    }

    /// Charges only the messages for which this holds.
    pub fn when(
        mut self,
        condition: impl Fn(&IngressContext<'_, D>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.condition = Some(Box::new(condition));
        self
    }

    /// Names the rule for the messages that this one does not charge: of the two, and of as many
    /// as are chained, a message is charged by the first whose condition holds.
    pub fn otherwise(mut self, other: impl Into<Self>) -> Self {
        self.otherwise = Some(Box::new(match self.otherwise.take() {
            Some(next) => next.otherwise(other),
            None => other.into(),
        }));
        self
    }
}

impl<D> Rule<D> {
    /// The rule among this and those chained to it that charges a message.
    pub(crate) fn choose(&self, context: &IngressContext<'_, D>) -> Option<&Self> {
        self.chain().find(|rule| rule.condition.as_ref().is_none_or(|holds| holds(context)))
    }

    pub(crate) fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |rule| rule.otherwise.as_deref())
    }

    /// Gives each limiter of the chain its seat.
    pub(crate) fn seat(&mut self, seats: &mut Vec<Limiter>) {
        let mut next = Some(self);
        while let Some(rule) = next {
            rule.seat = seats.len();
            seats.push(rule.limiter.clone());
            next = rule.otherwise.as_deref_mut();
        }
    }

    pub(crate) fn key_of<'a>(&self, context: &IngressContext<'a, D>) -> KeyParts<'a> {
        (self.key)(context)
    }

    pub(crate) fn cost_of(&self, context: &IngressContext<'_, D>) -> i64 {
        self.cost.as_ref().map_or(1, |cost| cost(context))
    }
}

impl<D: Identity> From<Limiter> for Rule<D> {
    fn from(limiter: Limiter) -> Self {
        Self::new(limiter)
    }
}

impl<D> fmt::Debug for Rule<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
