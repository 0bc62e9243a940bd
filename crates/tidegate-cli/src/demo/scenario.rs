//! The account at the provider, and the work of the agents.

use std::time::Duration;

use serde_json::json;
use tidegate_sim::{Account, Delay, Dialect, Limits, Output, Random, Simulator};

use super::DemoError;

/// Agents that work at the same time, tasks of each, and calls of a task.
pub(super) const AGENTS: u64 = 40;
pub(super) const TASKS: u64 = 2;
pub(super) const CALLS: u64 = 5;
/// What the account may use per minute.
pub(super) const REQUESTS_PER_MINUTE: u64 = 600;
pub(super) const TOKENS_PER_MINUTE: u64 = 400_000;

/// Name of the account in the ledger, its key, and its model.
pub(super) const ACCOUNT: &str = "demo";
pub(super) const KEY: &str = "sk-demo";
pub(super) const MODEL: &str = "demo-1";

/// Requests are counted in slices of this length, as providers do: ten in each second.
const SLICE: Duration = Duration::from_secs(1);
/// Fastest and slowest response.
const LATENCY: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(900)];
/// Shortest and longest prompt, in words, and the most tokens that a call asks for.
const WORDS: [u64; 2] = [20, 200];
const MAX_TOKENS: u64 = 300;

/// The demo with one seed, which determines the work and all random numbers except those of the
/// network and the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
}

impl Scenario {
    pub(super) const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The limits that the provider enforces. Clients do not know when its slices start.
    pub(super) fn limits(self) -> Limits {
        let phase = Random::new(self.seed, u64::MAX).between(0, 999);
        Limits::new()
            .requests_per_minute(REQUESTS_PER_MINUTE)
            .tokens_per_minute(TOKENS_PER_MINUTE)
            .slice(SLICE)
            .phase(Duration::from_millis(phase))
    }

    /// A provider whose minute has just begun.
    pub(super) fn provider(self) -> Result<Simulator, DemoError> {
        let [least, most] = LATENCY;
        let account = Account::new(Dialect::OpenAi, ACCOUNT, KEY)
            .model(MODEL, self.limits())
            .output(Output::between(20..=MAX_TOKENS))
            .first_token(Delay::between(least..=most));
        Ok(Simulator::builder().account(account).seed(self.seed).build()?)
    }

    /// The configuration of the gateway: where the provider is, and what its account allows.
    pub(super) fn settings(base_url: &str) -> String {
        format!(
            "[providers.openai]\nbase_url = \"{base_url}\"\n\
             requests_per_minute = {REQUESTS_PER_MINUTE}\n\
             tokens_per_minute = {TOKENS_PER_MINUTE}\n"
        )
    }

    /// The random numbers of one agent.
    pub(super) fn random(self, agent: u64) -> Random {
        Random::new(self.seed, agent)
    }

    /// The body of a call.
    pub(super) fn call(random: &mut Random) -> String {
        let [least, most] = WORDS;
        let prompt = "word ".repeat(usize::try_from(random.between(least, most)).unwrap_or(1));
        let messages = [json!({"role": "user", "content": prompt})];
        json!({"model": MODEL, "messages": messages, "max_tokens": MAX_TOKENS}).to_string()
    }
}
