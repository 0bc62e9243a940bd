//! The measured clients.

use anyhow::Result;
use tidegate_llm::plan::{Constraint, ConstraintSource, RawConstraint};
use tidegate_llm::rate_limit::{Account, RateLimitLayer};
use tidegate_llm::retry::RetryLayer;
use tidegate_llm::{Call, CallError, CallResponse};
use tidegate_providers::Credential;
use tidegate_sim::Simulator;
use tower::util::BoxCloneService;
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::network::{Dice, adapter};
use super::retry_loop::RetryLoop;
use super::scenario::{KEY, MODEL, Scenario};

/// A model with any layers.
pub(super) type Model = BoxCloneService<Call, CallResponse, CallError>;

/// The roles in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// `Retry(RateLimit(adapter))` with configured limits; two processes have half of them each.
    Configured,
    /// `Retry(RateLimit(adapter))` without configured limits, which learns them from responses.
    FromHeaders,
    /// A retry loop.
    Loop,
    /// A retry loop behind a token bucket; each process has one for the full limit.
    Bucket,
}

impl Role {
    pub(super) const ALL: [Self; 4] =
        [Self::Configured, Self::FromHeaders, Self::Loop, Self::Bucket];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Configured => "tidegate-llm, limits configured",
            Self::FromHeaders => "tidegate-llm, told by headers alone",
            Self::Loop => "retry loop",
            Self::Bucket => "token bucket and retry loop",
        }
    }

    /// The model that the agents of one process call.
    pub(super) fn enter(
        self,
        scenario: Scenario,
        simulator: &Simulator,
        dice: &Dice,
        seed: u64,
    ) -> Result<Model> {
        let adapter = adapter(simulator, dice)?;
        if matches!(self, Self::Loop | Self::Bucket) {
            let mut by_hand = RetryLoop::new(adapter.boxed_clone(), dice.clone());
            if self == Self::Bucket {
                by_hand = by_hand.paced(scenario.requests);
            }
            return Ok(service_fn(move |call| by_hand.clone().call(call)).boxed_clone());
        }
        let mut account = Account::builder("openai", &Credential::new(KEY));
        if self == Self::Configured {
            account = account.limits(part(scenario)?, ConstraintSource::Override);
        }
        let limits = RateLimitLayer::new(account.build()?, MODEL);
        let retry = RetryLayer::new("openai").seed(seed);
        Ok(retry.layer(limits.layer(adapter)).boxed_clone())
    }
}

/// The share of the limits of one process.
fn part(scenario: Scenario) -> Result<Constraint> {
    let part = |limit: u32| i64::try_from(limit as usize / scenario.processes);
    let raw = RawConstraint {
        requests_per_minute: Some(part(scenario.requests)?),
        tokens_per_minute: Some(part(scenario.tokens)?),
        ..RawConstraint::default()
    };
    Ok(Constraint::try_new(&raw)?)
}
