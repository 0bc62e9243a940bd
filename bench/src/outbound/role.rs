//! Who makes the calls.

use anyhow::Result;
use tidegate_llm::plan::{Constraint, RawConstraint, Source};
use tidegate_llm::rate_limit::{Account, RateLimitLayer};
use tidegate_llm::retry::RetryLayer;
use tidegate_llm::{Answer, Call, CallError};
use tidegate_providers::Credential;
use tidegate_sim::Simulator;
use tower::util::BoxCloneService;
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::network::{Dice, adapter};
use super::retry_loop::RetryLoop;
use super::scenario::{KEY, MODEL, Scenario};

/// A model, however it is guarded.
pub(super) type Model = BoxCloneService<Call, Answer, CallError>;

/// The roles in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// `Retry(RateLimit(adapter))` that was told the limits; of two processes, each half of them.
    Configured,
    /// The same, which knows nothing but what the provider's answers tell.
    FromHeaders,
    /// A loop that tries again.
    Loop,
    /// The same behind a token bucket; each process has one for all of the limit.
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

    /// What the agents of one process call.
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
            account = account.limits(part(scenario)?, Source::Override);
        }
        let limits = RateLimitLayer::new(account.build()?, MODEL);
        let retry = RetryLayer::new("openai").seed(seed);
        Ok(retry.layer(limits.layer(adapter)).boxed_clone())
    }
}

/// The part of the limits that one process may have.
fn part(scenario: Scenario) -> Result<Constraint> {
    let part = |limit: u32| i64::try_from(limit as usize / scenario.processes);
    let raw = RawConstraint {
        requests_per_minute: Some(part(scenario.requests)?),
        tokens_per_minute: Some(part(scenario.tokens)?),
        ..RawConstraint::default()
    };
    Ok(Constraint::try_new(&raw)?)
}
