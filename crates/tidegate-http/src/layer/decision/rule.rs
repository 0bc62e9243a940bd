//! One limit of a layer: what is limited, to whom it is charged, and how much.

use std::fmt;
use std::sync::Arc;

use tidegate::Limiter;

use crate::field::Unit;
use crate::head::Head;
use crate::key::{KeySource, KeyText, Missing, Unkeyed};
use crate::layer::ResponseSummary;

/// What a request costs.
pub(crate) type Cost = Arc<dyn Fn(&Head<'_>) -> u64 + Send + Sync>;
/// What a request has really cost.
pub(crate) type Real = Arc<dyn Fn(&ResponseSummary) -> u64 + Send + Sync>;

/// A limit and whom it is charged to. [`LimitLayer::limit`](crate::layer::LimitLayer::limit) makes one
/// with everything else at its default.
///
/// A limit by bytes takes one byte before and the others when it is known how many there were, so
/// a caller is refused as long as it is in debt:
///
/// ```
/// use tidegate::{Limiter, Policy};
/// use tidegate_http::field::Unit;
/// use tidegate_http::key::{self, Missing};
/// use tidegate_http::layer::{LimitLayer, Rule};
///
/// let bytes = Limiter::new(Policy::per_second(1_000_000).capacity(50_000_000).build()?);
/// let rule = Rule::new(bytes, key::api_key("x-api-key"))
///     .missing(Missing::Unauthorized)
///     .unit(Unit::CONTENT_BYTES)
///     .cost(|_| 0)
///     .settle(|response| response.bytes());
/// let layer = LimitLayer::new().rule(rule);
/// # Ok::<(), tidegate::PolicyError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Rule {
    pub(crate) limiter: Limiter,
    key: Arc<dyn KeySource>,
    missing: Missing,
    pub(crate) unit: Option<Unit>,
    pub(crate) cost: Option<Cost>,
    pub(crate) settle: Option<Real>,
}

impl Rule {
    /// A limit that is charged by this key: one for each request, unless said otherwise.
    pub fn new(limiter: Limiter, key: impl KeySource + 'static) -> Self {
        Self {
            limiter,
            key: Arc::new(key),
            missing: Missing::default(),
            unit: None,
            cost: None,
            settle: None,
        }
    }

    /// What becomes of requests without a key; by default the client's address is charged.
    pub fn missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }

    /// What the limit counts, as callers are told: requests unless said otherwise, and requests at
    /// the same time if it is one of concurrency.
    pub const fn unit(mut self, unit: Unit) -> Self {
        self.unit = Some(unit);
        self
    }

    /// What a request costs of this limit, in place of the layer's cost. Where it is settled, a
    /// cost of zero is taken as one before and corrected after: zero is never refused, so that a
    /// limit in debt would stop nobody.
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// What a request has really cost of this limit, in place of the layer's
    /// [`settle`](crate::layer::LimitLayer::settle). Slots of a concurrency limit are not settled: all of
    /// them are given back.
    pub fn settle(
        mut self,
        real: impl Fn(&ResponseSummary) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.settle = Some(Arc::new(real));
        self
    }

    /// The key of a request; `None` if the limit does not apply to it.
    pub(crate) fn key(&self, head: &Head<'_>) -> Result<Option<KeyText>, Unkeyed> {
        self.missing.key(&*self.key, head)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("limit", &self.limiter.limit().name())
            .field("missing", &self.missing)
            .field("unit", &self.unit)
            .finish_non_exhaustive()
    }
}
