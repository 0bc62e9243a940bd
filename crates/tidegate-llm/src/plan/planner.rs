//! The planner: finds the constraint for a call.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use tidegate_providers::{Dialect, Endpoint, Provider};

use super::capability::{GEMINI, GeminiCapability};
use super::constraint::Constraint;
use super::inference::Inference;
use super::raw::RawConstraint;
use super::tier::{FREE, TierTable, tier_name};
use super::violation::{Checks, InvalidSettings, Rule};
use super::{ConstraintSource, Plan};

/// Model of requests that do not name one.
pub const DEFAULT_MODEL: &str = "gemini-2.0-flash";

/// Default requests per minute, also for `rate_limits` that do not set them.
const DEFAULT_REQUESTS: u32 = 60;

/// Default requests per minute for Gemini, whose free tier is small.
const DEFAULT_GEMINI_REQUESTS: u32 = 10;

/// Returns the provider's limits of a model in a tier, if known.
type Capability = dyn Fn(&str, &str) -> Option<Constraint> + Send + Sync;

/// Input of the planner. It can be deserialised from a provider's section of a configuration.
///
/// ```
/// use std::collections::HashMap;
/// use tidegate_llm::plan::PlanRequest;
/// let text = r#"{ "gemini": { "tier": "tier_2", "rate_limits": { "requests_per_minute": 1000 } } }"#;
/// let mut providers: HashMap<String, PlanRequest> = serde_json::from_str(text)?;
/// let request = providers.remove("gemini").unwrap_or_default().provider("gemini");
/// # let _ = request;
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
pub struct PlanRequest {
    provider: Option<String>,
    model: Option<String>,
    tier: Option<String>,
    rate_limits: Option<RawConstraint>,
    // `user` and `endpoint` belong to a call, not to the configuration.
    #[serde(skip)]
    user: Option<String>,
    #[serde(skip)]
    endpoint: Option<Endpoint>,
}

impl PlanRequest {
    /// Creates a request with defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the provider. Default: inferred from the model's name.
    pub fn provider(mut self, name: &str) -> Self {
        self.provider = Some(name.to_owned());
        self
    }

    /// Sets the model. Default: [`DEFAULT_MODEL`].
    pub fn model(mut self, name: &str) -> Self {
        self.model = Some(name.to_owned());
        self
    }

    /// Sets the tier. It must be in the tier table if that has tiers of the provider, or be known to
    /// the capability. Default: none; limits are then those of `free`, if the provider has such a
    /// tier.
    pub fn tier(mut self, name: &str) -> Self {
        self.tier = Some(name.to_owned());
        self
    }

    /// Sets limits that override all other sources, for any provider. Requests per minute default
    /// to 60; everything else is unlimited unless set.
    pub fn rate_limits(mut self, limits: RawConstraint) -> Self {
        self.rate_limits = Some(limits);
        self
    }

    /// Sets the user. It affects keys, not constraints.
    pub fn user(mut self, name: &str) -> Self {
        self.user = Some(name.to_owned());
        self
    }

    /// Sets the endpoint. Default: `chat`. It affects keys, not constraints.
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoint = Some(endpoint);
        self
    }

    /// Returns the provider, if set.
    #[must_use]
    pub fn provider_name(&self) -> Option<&str> {
        self.provider.as_deref()
    }

    /// Returns the model, if set.
    #[must_use]
    pub fn model_name(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns the tier, if set.
    #[must_use]
    pub fn tier_name(&self) -> Option<&str> {
        self.tier.as_deref()
    }

    /// Returns the user, if set.
    #[must_use]
    pub fn user_name(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the endpoint, if set.
    #[must_use]
    pub fn endpoint_name(&self) -> Option<&str> {
        self.endpoint.as_ref().map(Endpoint::as_str)
    }

    pub(crate) fn model_or_default(&self) -> &str {
        self.model_name().unwrap_or(DEFAULT_MODEL)
    }
}

/// Finds the constraint for a request. Cheap to clone; clones share the tier table.
///
/// ```
/// use tidegate_llm::plan::{Constraint, ConstraintSource, PlanRequest, Planner, RawConstraint};
/// let known = |_model: &str, tier: &str| {
///     let requests = if tier == "scale" { 5_000 } else { 50 };
///     Some(Constraint::per_minute(std::num::NonZeroU32::new(requests)?))
/// };
/// let planner = Planner::default().capability("anthropic", known);
/// let request = PlanRequest::new().model("claude-sonnet").tier("scale");
/// let plan = planner.plan(&request)?;
/// assert_eq!(plan.source, ConstraintSource::Capability);
/// let limits = RawConstraint { requests_per_minute: Some(10), ..RawConstraint::default() };
/// assert_eq!(planner.plan(&request.rate_limits(limits))?.source, ConstraintSource::Override);
/// # Ok::<(), tidegate_llm::plan::InvalidSettings>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Planner {
    capabilities: Arc<HashMap<Provider, Arc<Capability>>>,
    tiers: Arc<ArcSwap<TierTable>>,
    inference: Inference,
}

impl Default for Planner {
    /// Creates a planner with the [shipped](TierTable::shipped) tier table, and the
    /// [`GeminiCapability`] for the provider `gemini`.
    fn default() -> Self {
        let tiers = Arc::new(ArcSwap::from_pointee(TierTable::shipped().clone()));
        let gemini = GeminiCapability::over(tiers.clone());
        let planner = Self { capabilities: Arc::default(), tiers, inference: Inference::default() };
        planner.capability(GEMINI, move |model: &str, tier: &str| gemini.constraint(model, tier))
    }
}

impl Planner {
    /// Sets the function that returns the limits of a provider by model and tier (in lower case).
    /// If it returns `None`, the next source is used. Replaces an earlier function of the same
    /// provider. Default: [`GeminiCapability`] for `gemini`, none for others.
    pub fn capability(
        mut self,
        provider: impl Into<Provider>,
        capability: impl Fn(&str, &str) -> Option<Constraint> + Send + Sync + 'static,
    ) -> Self {
        let capabilities = Arc::make_mut(&mut self.capabilities);
        capabilities.insert(provider.into(), Arc::new(capability));
        self
    }

    /// Sets the table that infers providers. Default: [`Inference::default`].
    pub fn inference(mut self, inference: Inference) -> Self {
        self.inference = inference;
        self
    }

    /// Replaces the tier table for all clones. A concurrent [`plan`](Self::plan) uses either the
    /// old or the new table. Default: [`TierTable::shipped`].
    pub fn replace_tiers(&self, table: TierTable) {
        self.tiers.store(Arc::new(table));
    }

    /// Returns the plan for a request.
    ///
    /// # Errors
    /// Names the known tiers if the tier of the request is none of them, whatever its limits are:
    /// the tier is also part of keys. Else lists all violations in its `rate_limits`.
    pub fn plan(&self, request: &PlanRequest) -> Result<Plan, InvalidSettings> {
        let (model, provider) = (request.model_or_default(), self.inference.provider_of(request));
        let tier = tier_name(request.tier.as_deref().unwrap_or(FREE));
        let capability = self.capabilities.get(&provider);
        let known = capability.and_then(|capability| capability(model, &tier));
        let table = self.tiers.load();
        if request.tier.is_some() && known.is_none() {
            check_tier(&table, &provider, &tier)?;
        }
        if let Some(limits) = &request.rate_limits {
            return Ok(Plan::constrained(override_constraint(limits)?, ConstraintSource::Override));
        }
        if let Some(constraint) = known {
            return Ok(Plan::constrained(constraint, ConstraintSource::Capability));
        }
        if let Some(constraint) = table.get(&provider, &tier, model) {
            return Ok(Plan::constrained(constraint.clone(), ConstraintSource::Tier));
        }
        Ok(Plan::constrained(default_constraint(&provider), ConstraintSource::Default))
    }
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capabilities: Vec<_> = self.capabilities.keys().collect();
        f.debug_struct("Planner")
            .field("capabilities", &capabilities)
            .field("tiers", &self.tiers.load().len())
            .field("inference", &self.inference)
            .finish()
    }
}

/// Returns the constraint of the user's override, with default requests per minute.
fn override_constraint(limits: &RawConstraint) -> Result<Constraint, InvalidSettings> {
    let mut limits = limits.clone();
    limits.requests_per_minute.get_or_insert(DEFAULT_REQUESTS.into());
    Constraint::try_new(&limits)
}

/// Rejects a tier that is not in the table, if the table has tiers of the provider.
fn check_tier(table: &TierTable, provider: &Provider, tier: &str) -> Result<(), InvalidSettings> {
    let known = table.tiers(provider);
    let mut checks = Checks::default();
    if !known.is_empty() && !known.iter().any(|known| known == tier) {
        let rule = Rule::UnknownTier { provider: provider.to_string(), known: known.join(", ") };
        checks.reject("tier", &tier, rule);
    }
    checks.finish(())
}

/// Returns the constraint when no source has one.
fn default_constraint(provider: &Provider) -> Constraint {
    let requests = match Dialect::of(provider) {
        Dialect::Gemini => DEFAULT_GEMINI_REQUESTS,
        _ => DEFAULT_REQUESTS,
    };
    Constraint::per_minute(NonZeroU32::new(requests).unwrap_or(NonZeroU32::MIN))
}
