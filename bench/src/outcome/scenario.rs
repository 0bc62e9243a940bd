//! The account at the provider, and who shares it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tidegate_sim::{Account, Delay, Dialect, Limits, Output, Simulator};

/// The key and the model at the provider.
pub(super) const KEY: &str = "sk-bench";
pub(super) const MODEL: &str = "model-1";
/// What the account may use per minute. Requests are counted in slices of a second.
pub(super) const REQUESTS: u64 = 600;
pub(super) const TOKENS: u64 = 400_000;
/// Most tokens of a response.
const MAX_TOKENS: u64 = 300;
/// Fastest and slowest response.
const LATENCY: [Duration; 2] = [Duration::from_millis(400), Duration::from_millis(600)];
/// Seconds between two calls of the quiet tenant, which has one agent.
const QUIET_EVERY: f64 = 2.0;
/// A run ends after this many times the shortest time, finished or not.
const LONGEST: f64 = 6.0;

/// The tenants with much work: the same work each, but not the same number of agents.
const TENANTS: [(&str, u32); 3] = [("large", 20), ("medium", 12), ("small", 7)];

/// A tenant with work.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Tenant {
    pub(super) name: &'static str,
    agents: u32,
    pub(super) calls: u32,
}

/// What the agents are to do, for the script.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Plan {
    pub(super) base_url: String,
    pub(super) headers: BTreeMap<&'static str, String>,
    pub(super) key: String,
    model: &'static str,
    max_tokens: u64,
    seed: u64,
    pub(super) tenants: Vec<Tenant>,
    quiet_every: f64,
    /// Seconds until the script gives up.
    longest: f64,
    /// Seconds that the quiet tenant is measured without others.
    alone: f64,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(super) runs: u64,
    /// Calls of each tenant with work.
    pub(super) calls: u32,
}

pub(crate) const THOROUGH: Effort = Effort { runs: 3, calls: 200 };
pub(crate) const QUICK: Effort = Effort { runs: 1, calls: 60 };

/// The limits of the provider. Clients do not start with its clock.
pub(super) fn limits(seed: u64) -> Limits {
    Limits::new()
        .requests_per_minute(REQUESTS)
        .tokens_per_minute(TOKENS)
        .slice(Duration::from_secs(1))
        .phase(Duration::from_millis(seed * 137 % 1_000))
}

/// A provider with these limits.
pub(super) fn provider(seed: u64) -> Result<Simulator> {
    let [least, most] = LATENCY;
    let account = Account::new(Dialect::OpenAi, "bench", KEY)
        .model(MODEL, limits(seed))
        .output(Output::between(20..=MAX_TOKENS))
        .first_token(Delay::between(least..=most));
    Ok(Simulator::builder().account(account).seed(seed).build()?)
}

impl Plan {
    /// All tenants, with a base URL and headers for their client.
    pub(super) fn new(effort: Effort, seed: u64, base_url: String) -> Self {
        let tenant = |(name, agents)| Tenant { name, agents, calls: effort.calls };
        let tenants: Vec<_> = TENANTS.into_iter().map(tenant).collect();
        let calls = f64::from(effort.calls) * tenants.iter().map(|_| 1.0).sum::<f64>();
        Self {
            base_url,
            headers: BTreeMap::new(),
            key: KEY.to_owned(),
            model: MODEL,
            max_tokens: MAX_TOKENS,
            seed,
            tenants,
            quiet_every: QUIET_EVERY,
            longest: LONGEST * calls / 10.0,
            alone: f64::from(effort.calls) / 4.0,
        }
    }

    /// The quiet tenant alone.
    pub(super) fn alone(mut self) -> Self {
        self.tenants.clear();
        self
    }
}
