//! What Gemini is able to say of its limits: those of an account's tier.
//!
//! The numbers are data, in the rows of a [`TierTable`]; the capability knows how Gemini's API names
//! its models. It has no default of its own: a model without a row is left to the planner.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tidegate_providers::Provider;

use super::constraint::Constraint;
use super::tier::TierTable;

/// Name of the provider in tables.
pub(super) const GEMINI: &str = "gemini";

/// Prefix of models in the resource names of the API.
const RESOURCE: &str = "models/";

/// The limits of Gemini's models by tier. A [`Planner`](super::Planner) has it for the provider
/// `gemini`, with its own table; use another one for a provider of another name.
///
/// ```
/// use tidegate_llm::plan::{ConstraintSource, GeminiCapability, PlanRequest, Planner, TierTable};
/// let gemini = GeminiCapability::new(TierTable::shipped().clone());
/// let planner = Planner::default()
///     .capability("our-gemini", move |model: &str, tier: &str| gemini.constraint(model, tier));
/// let request = PlanRequest::new().model("models/gemini-2.0-flash").tier("tier_2");
/// for provider in ["gemini", "our-gemini"] {
///     let plan = planner.plan(&request.clone().provider(provider))?;
///     assert_eq!(plan.source, ConstraintSource::Capability);
///     assert_eq!(plan.constraint.unwrap().requests_per_minute().unwrap().get(), 10_000);
/// }
/// # Ok::<(), tidegate_llm::plan::InvalidSettings>(())
/// ```
#[derive(Clone)]
pub struct GeminiCapability {
    tiers: Arc<ArcSwap<TierTable>>,
}

impl GeminiCapability {
    /// Creates the capability with the rows of a table for `gemini`.
    #[must_use]
    pub fn new(table: TierTable) -> Self {
        Self { tiers: Arc::new(ArcSwap::from_pointee(table)) }
    }

    /// Creates the capability with a table that may be replaced.
    pub(super) const fn over(tiers: Arc<ArcSwap<TierTable>>) -> Self {
        Self { tiers }
    }

    /// Returns the limits of a model in a tier, if the table has them. `models/gemini-2.5-flash` is
    /// the same model as `gemini-2.5-flash`.
    #[must_use]
    pub fn constraint(&self, model: &str, tier: &str) -> Option<Constraint> {
        let name = model.strip_prefix(RESOURCE).unwrap_or(model);
        self.tiers.load().get(&Provider::new(GEMINI), tier, name).cloned()
    }
}

impl fmt::Debug for GeminiCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeminiCapability").field("rows", &self.tiers.load().len()).finish()
    }
}
