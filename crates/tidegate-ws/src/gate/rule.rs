//! One limit of a gate: the limiter, the key, the cost, and the messages it applies to.
//!
//! A rule contains no policy: rate and capacity belong to the limiter, and can change while the
//! gate is in use.

use std::fmt;

use tidegate::Limiter;

use crate::context::{Identity, IngressContext};
use crate::key::{KeyParts, default_key};

type KeyFn<D> = dyn for<'a> Fn(&IngressContext<'a, D>) -> KeyParts<'a> + Send + Sync;
type CostFn<D> = dyn Fn(&IngressContext<'_, D>) -> i64 + Send + Sync;
type Condition<D> = dyn Fn(&IngressContext<'_, D>) -> bool + Send + Sync;

/// One limit of a gate.
///
/// By default it charges one token to the user's bucket for the message type. A client without a
/// user is charged by address, and one without either by connection.
///
/// ```
/// use tidegate::{Engine, Policy};
/// use tidegate_ws::{Gate, KeyParts, MessageRule};
/// # struct Session { premium: bool }
/// # impl tidegate_ws::Identity for Session {}
/// let engine = Engine::new();
/// let free = engine.limiter("free", Policy::per_second(10).capacity(100).build()?)?;
/// let premium = engine.limiter("premium", Policy::per_second(100).capacity(1_000).build()?)?;
/// let shared = engine.limiter("all", Policy::per_second(100_000).build()?)?;
///
/// let gate = Gate::for_types(["SendMessage", "Compute"])
///     .limit(MessageRule::<Session>::new(premium).when(|context| context.data().premium).otherwise(free))
///     .limit(
///         MessageRule::new(shared)
///             .key(|_| KeyParts::from(["rl", "all"]))
///             .cost(|context| if context.message_type() == "Compute" { 10 } else { 1 }),
///     )
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a rule has no effect until it is added to a gate"]
pub struct MessageRule<D> {
    limiter: Limiter,
    key: Box<KeyFn<D>>,
    has_default_key: bool,
    cost: Option<Box<CostFn<D>>>,
    condition: Option<Box<Condition<D>>>,
    otherwise: Option<Box<Self>>,
    /// Index of the limiter among those of the gate.
    pub(crate) limiter_index: usize,
}

impl<D: Identity> MessageRule<D> {
    /// Creates a rule for a limiter, on a local or a shared store.
    pub fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            key: Box::new(default_key),
            has_default_key: true,
            cost: None,
            condition: None,
            otherwise: None,
            limiter_index: 0,
        }
    }

    /// Sets the key. Keep the number of keys small: a key with a time or a message id is a new,
    /// full bucket for every message, and limits nothing.
    pub fn key(
        mut self,
        key: impl for<'a> Fn(&IngressContext<'a, D>) -> KeyParts<'a> + Send + Sync + 'static,
    ) -> Self {
        self.key = Box::new(key);
        self.has_default_key = false;
        self
    }

    /// Sets the cost. The default is one token. A message with a cost below 1 is refused with
    /// `INVALID_ARGUMENT`, and spends nothing but a token of the
    /// [ceiling](crate::GateBuilder::connection_ceiling).
    ///
    /// Costs weight messages within one policy. They do not isolate them: see
    /// [`per_user_key`](crate::per_user_key). For fractions of a token, count in smaller units: a
    /// policy in thousandths, and costs of 500.
    pub fn cost(
        mut self,
        cost: impl Fn(&IngressContext<'_, D>) -> i64 + Send + Sync + 'static,
    ) -> Self {
        self.cost = Some(Box::new(cost));
        self
    }

    /// Charges only messages for which `condition` returns true.
    pub fn when(
        mut self,
        condition: impl Fn(&IngressContext<'_, D>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.condition = Some(Box::new(condition));
        self
    }

    /// Sets the rule for messages that this one does not charge. Of a chain of rules, the first
    /// whose condition holds charges the message.
    pub fn otherwise(mut self, other: impl Into<Self>) -> Self {
        self.otherwise = Some(Box::new(match self.otherwise.take() {
            Some(next) => next.otherwise(other),
            None => other.into(),
        }));
        self
    }
}

impl<D> MessageRule<D> {
    /// Returns whether no key was set.
    pub(crate) const fn has_default_key(&self) -> bool {
        self.has_default_key
    }

    /// Returns whether the rule charges only some messages.
    pub(crate) const fn is_conditional(&self) -> bool {
        self.condition.is_some()
    }

    /// Returns the rule of the chain that charges a message.
    pub(crate) fn choose(&self, context: &IngressContext<'_, D>) -> Option<&Self> {
        self.chain().find(|rule| rule.condition.as_ref().is_none_or(|holds| holds(context)))
    }

    pub(crate) fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |rule| rule.otherwise.as_deref())
    }

    /// Assigns each limiter of the chain its index.
    pub(crate) fn assign_indices(&mut self, limiters: &mut Vec<Limiter>) {
        let mut next = Some(self);
        while let Some(rule) = next {
            rule.limiter_index = limiters.len();
            limiters.push(rule.limiter.clone());
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

impl<D: Identity> From<Limiter> for MessageRule<D> {
    fn from(limiter: Limiter) -> Self {
        Self::new(limiter)
    }
}

impl<D> fmt::Debug for MessageRule<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRule").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
