//! One limit of a layer: the limiter, the key, and the cost.

use std::fmt;
use std::sync::Arc;

use tidegate::Limiter;

use crate::field::Unit;
use crate::head::Head;
use crate::key::{KeySource, KeyText, MissingKey, MissingKeyError};
use crate::layer::ResponseSummary;

/// Function for the cost of a request.
pub(crate) type Cost = Arc<dyn Fn(&Head<'_>) -> u64 + Send + Sync>;
/// Function for the actual cost of a request.
pub(crate) type ActualCost = Arc<dyn Fn(&ResponseSummary) -> u64 + Send + Sync>;

/// A limit and the key that it is charged to.
/// [`LimitLayer::limit`](crate::layer::LimitLayer::limit) creates one with default options.
///
/// A limit by bytes takes one byte up front and the others once their number is known, so a caller
/// is refused while it is in debt:
///
/// ```
/// use tidegate::{Limiter, Policy};
/// use tidegate_http::field::Unit;
/// use tidegate_http::key::{self, MissingKey};
/// use tidegate_http::layer::{LimitLayer, LimitRule};
///
/// let bytes = Limiter::new(Policy::per_second(1_000_000).capacity(50_000_000).build()?);
/// let rule = LimitRule::new(bytes, key::api_key("x-api-key"))
///     .missing(MissingKey::Unauthorized)
///     .unit(Unit::CONTENT_BYTES)
///     .cost(|_| 0)
///     .settle(|response| response.bytes());
/// let layer = LimitLayer::new().rule(rule);
/// # Ok::<(), tidegate::PolicyError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct LimitRule {
    pub(crate) limiter: Limiter,
    key: Arc<dyn KeySource>,
    missing: MissingKey,
    pub(crate) unit: Option<Unit>,
    pub(crate) cost: Option<Cost>,
    pub(crate) settle: Option<ActualCost>,
}

impl LimitRule {
    /// Creates a rule that charges `limiter` by `key`, with the cost of the layer.
    pub fn new(limiter: Limiter, key: impl KeySource + 'static) -> Self {
        Self {
            limiter,
            key: Arc::new(key),
            missing: MissingKey::default(),
            unit: None,
            cost: None,
            settle: None,
        }
    }

    /// Sets what to do with requests without a key. The default charges the client address.
    pub fn missing(mut self, missing: MissingKey) -> Self {
        self.missing = missing;
        self
    }

    /// Sets the unit reported to callers. The default is requests, or concurrent requests for a
    /// concurrency limit.
    pub const fn unit(mut self, unit: Unit) -> Self {
        self.unit = Some(unit);
        self
    }

    /// Sets the cost of a request for this limit, in place of the layer's cost. If the cost is
    /// settled, zero is charged as 1 up front and corrected later: zero is never denied, so a limit
    /// in debt would refuse no request.
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// Sets the actual cost of a request for this limit, in place of the layer's
    /// [`settle`](crate::layer::LimitLayer::settle). Slots of a concurrency limit are not settled:
    /// all of them are released.
    pub fn settle(
        mut self,
        actual: impl Fn(&ResponseSummary) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.settle = Some(Arc::new(actual));
        self
    }

    /// Returns the key of a request, or `None` if the limit does not apply to it.
    pub(crate) fn key(&self, head: &Head<'_>) -> Result<Option<KeyText>, MissingKeyError> {
        self.missing.key(&*self.key, head)
    }
}

impl fmt::Debug for LimitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitRule")
            .field("limit", &self.limiter.limit().name())
            .field("missing", &self.missing)
            .field("unit", &self.unit)
            .finish_non_exhaustive()
    }
}
