//! Constraints and how they are chosen.
//!
//! A [`Constraint`] contains the limits of a provider. A [`Planner`] finds the one for a call: the
//! user's override first, then a [capability](Planner::capability) of the provider (that of Gemini
//! is [built in](GeminiCapability)), then a [`TierTable`], then a default. The [`Plan`] carries the
//! constraint and its [`ConstraintSource`], so that it is visible why a call is limited. An
//! [`Inference`] finds the provider of a model.
//!
//! Nothing here waits, counts or sends. Limits of providers without a dated public source are not
//! shipped.

mod capability;
mod constraint;
mod daily;
mod inference;
mod planner;
mod raw;
mod tier;
mod violation;

use std::fmt;

use serde::Serialize;
use tidegate_providers::Dimension;

pub use capability::GeminiCapability;
pub use constraint::Constraint;
pub(crate) use daily::Daily;
pub use inference::{Inference, UNKNOWN_PROVIDER};
pub use planner::{DEFAULT_MODEL, PlanRequest, Planner};
pub use raw::RawConstraint;
pub(crate) use tier::tier_name;
pub use tier::{TierRow, TierTable};
pub use violation::InvalidSettings;
pub(crate) use violation::{Checks, Rule, burst, rate};

/// Where a constraint comes from, in order of precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ConstraintSource {
    /// Override by the user.
    Override,
    /// The provider's capability.
    Capability,
    /// The tier table.
    Tier,
    /// Default, since no other source has a constraint.
    #[default]
    Default,
}

impl fmt::Display for ConstraintSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Override => "override",
            Self::Capability => "capability",
            Self::Tier => "tier",
            Self::Default => "default",
        })
    }
}

/// Estimate of the tokens of a call before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TokenEstimate {
    /// Lower bound.
    pub min_tokens: u64,
    /// Expected number.
    pub expected_tokens: u64,
    /// Upper bound; this number is reserved.
    pub max_tokens: u64,
    /// Input tokens within `max_tokens`, if known; the rest are output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
}

impl TokenEstimate {
    /// Returns the maximum number of tokens in a dimension. If the input is not known, either input
    /// or output may be all of them.
    fn max_in(&self, dimension: Dimension) -> u64 {
        let input = self.input_tokens.map(|input| input.min(self.max_tokens));
        match dimension {
            Dimension::Tokens => self.max_tokens,
            Dimension::InputTokens => input.unwrap_or(self.max_tokens),
            Dimension::OutputTokens => self.max_tokens - input.unwrap_or(0),
            Dimension::Requests | Dimension::RequestsPerDay => 0,
        }
    }
}

/// The constraint for a call and where it comes from. `Display` and serialisation show it.
///
/// ```
/// use tidegate_llm::plan::{Plan, PlanRequest, Planner};
/// assert_eq!(Plan::default().constraint, None);
/// let plan = Planner::default().plan(&PlanRequest::new().model("gpt-4o"))?;
/// assert_eq!(plan.to_string(), "requests_per_minute=60 burst=1 (default)");
/// # Ok::<(), tidegate_llm::plan::InvalidSettings>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// Constraint to enforce; `None` means no limit.
    pub constraint: Option<Constraint>,
    /// Source of the constraint.
    pub source: ConstraintSource,
    /// Estimate of tokens, if known.
    pub estimate: Option<TokenEstimate>,
}

impl Plan {
    /// Creates a plan with a constraint.
    #[must_use]
    pub const fn constrained(constraint: Constraint, source: ConstraintSource) -> Self {
        Self { constraint: Some(constraint), source, estimate: None }
    }

    /// Sets the token estimate.
    #[must_use]
    pub const fn with_estimate(mut self, estimate: TokenEstimate) -> Self {
        self.estimate = Some(estimate);
        self
    }

    /// Returns the number of tokens reserved before the call: the upper bound of the estimate if
    /// tokens are limited, in total or by input and output, else 0.
    #[must_use]
    pub fn reserved_tokens(&self) -> u64 {
        let reserved = Dimension::ALL.map(|dimension| self.reserved(dimension));
        let together = reserved.into_iter().fold(0, u64::saturating_add);
        // Without a split, each dimension reserves the whole estimate.
        together.min(self.estimate.map_or(0, |estimate| estimate.max_tokens))
    }

    /// Returns the number of tokens reserved in one dimension; 0 if it is not limited.
    ///
    /// ```
    /// use tidegate_llm::Dimension;
    /// use tidegate_llm::plan::{Constraint, ConstraintSource, Plan, RawConstraint, TokenEstimate};
    /// let apart = RawConstraint { output_tokens_per_minute: Some(600), ..RawConstraint::default() };
    /// let estimate = TokenEstimate {
    ///     min_tokens: 70,
    ///     expected_tokens: 90,
    ///     max_tokens: 100,
    ///     input_tokens: Some(70),
    /// };
    /// let plan = Plan::constrained(Constraint::try_new(&apart)?, ConstraintSource::Override);
    /// let plan = plan.with_estimate(estimate);
    /// assert_eq!(plan.reserved(Dimension::OutputTokens), 30);
    /// assert_eq!(plan.reserved(Dimension::InputTokens), 0);
    /// # Ok::<(), tidegate_llm::plan::InvalidSettings>(())
    /// ```
    #[must_use]
    pub fn reserved(&self, dimension: Dimension) -> u64 {
        let limited = self.constraint.as_ref().and_then(|limits| limits.rate(dimension)).is_some();
        self.estimate.filter(|_| limited).map_or(0, |estimate| estimate.max_in(dimension))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.constraint {
            Some(constraint) => write!(f, "{constraint} ({})", self.source),
            None => f.write_str("no constraint"),
        }
    }
}
