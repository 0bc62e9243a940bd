//! Constraints, and where they come from.
//!
//! A [`Constraint`] says what a provider allows. A [`Planner`] finds the one for a call: what the
//! user wrote wins over what a [capability](Planner::capability) of the provider knows, over a [`TierTable`], over a
//! default. The [`Plan`] carries it together with its [`Source`], so that nobody has to guess why
//! a call was slow. An [`Inference`] finds the provider of a model; [`by_model`], [`by_user`] and
//! [`by_endpoint`] name what shares a limit.
//!
//! Nothing here waits, counts or sends; numbers of providers that have no dated public source are
//! not shipped.

mod constraint;
mod daily;
mod inference;
mod key;
mod planner;
mod raw;
mod tier;
mod violation;

use std::fmt;

use serde::Serialize;
use tidegate_providers::Dimension;

pub use constraint::Constraint;
pub(crate) use daily::Daily;
pub use inference::{Inference, UNKNOWN_PROVIDER};
pub(crate) use key::KeyExtractor;
pub use key::{by_endpoint, by_model, by_user};
pub use planner::{DEFAULT_MODEL, PlanRequest, Planner};
pub use raw::RawConstraint;
pub use tier::TierTable;
pub use violation::Invalid;
pub(crate) use violation::{Checks, Rule, burst, rate};

/// Where a constraint comes from, the strongest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Source {
    /// The user wrote it.
    Override,
    /// The provider's capability knew it.
    Capability,
    /// It stands in the table of tiers.
    Tier,
    /// Nobody knew anything.
    #[default]
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Override => "override",
            Self::Capability => "capability",
            Self::Tier => "tier",
            Self::Default => "default",
        })
    }
}

/// Tokens that a call may take, as guessed before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TokenEstimate {
    /// Surely no fewer.
    pub min_tokens: u64,
    /// So many, most likely.
    pub expected_tokens: u64,
    /// Surely no more.
    pub max_tokens: u64,
    /// How many of the most are input, if that is known; the others are output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
}

impl TokenEstimate {
    /// The most tokens that a dimension may see. Where nobody knows what is input and what is
    /// output, either may be all of it.
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

/// What a call is to keep to. Printed or serialised, it shows its constraint.
///
/// ```
/// use tidegate_llm::plan::{Plan, PlanRequest, Planner};
/// assert_eq!(Plan::default().constraint, None);
/// let plan = Planner::default().plan(&PlanRequest::new().model("gpt-4o"))?;
/// assert_eq!(plan.to_string(), "requests_per_minute=60 burst=1 (default)");
/// # Ok::<(), tidegate_llm::plan::Invalid>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// What it keeps to; nothing if unset.
    pub constraint: Option<Constraint>,
    /// Where that comes from.
    pub source: Source,
    /// How many tokens it may take, if somebody has guessed.
    pub estimate: Option<TokenEstimate>,
}

impl Plan {
    /// A plan with a constraint.
    #[must_use]
    pub const fn constrained(constraint: Constraint, source: Source) -> Self {
        Self { constraint: Some(constraint), source, estimate: None }
    }

    /// The same with a guess of tokens.
    #[must_use]
    pub const fn with_estimate(mut self, estimate: TokenEstimate) -> Self {
        self.estimate = Some(estimate);
        self
    }

    /// How many tokens are reserved before the call: the most it may take where tokens of a minute
    /// are limited, together or apart, else none.
    #[must_use]
    pub fn reserved_tokens(&self) -> u64 {
        let reserved = Dimension::ALL.map(|dimension| self.reserved(dimension));
        let together = reserved.into_iter().fold(0, u64::saturating_add);
        // Whoever does not know the parts reserves all of it in each of them.
        together.min(self.estimate.map_or(0, |estimate| estimate.max_tokens))
    }

    /// How many tokens are reserved in one dimension; none where it is not limited.
    ///
    /// ```
    /// use tidegate_llm::Dimension;
    /// use tidegate_llm::plan::{Constraint, Plan, RawConstraint, Source, TokenEstimate};
    /// let apart = RawConstraint { output_tokens_per_minute: Some(600), ..RawConstraint::default() };
    /// let estimate = TokenEstimate {
    ///     min_tokens: 70,
    ///     expected_tokens: 90,
    ///     max_tokens: 100,
    ///     input_tokens: Some(70),
    /// };
    /// let plan = Plan::constrained(Constraint::try_new(&apart)?, Source::Override);
    /// let plan = plan.with_estimate(estimate);
    /// assert_eq!(plan.reserved(Dimension::OutputTokens), 30);
    /// assert_eq!(plan.reserved(Dimension::InputTokens), 0);
    /// # Ok::<(), tidegate_llm::plan::Invalid>(())
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
