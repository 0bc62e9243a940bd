//! Scenarios: the limits of a provider, and the work to do.

use std::time::Duration;

use anyhow::Result;
use tidegate_llm::Call;
use tidegate_providers::Chat;
use tidegate_sim::{Account, Delay, Dialect, Limits, Output, Simulator};

use crate::keys::SplitMix;

/// The key, the account and the model at the provider.
pub(super) const KEY: &str = "sk-bench";
pub(super) const MODEL: &str = "model-1";
/// Requests are counted in slices of this length.
const SLICE: Duration = Duration::from_secs(1);
/// Minimum and maximum response time.
const LATENCY: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(900)];

/// Work to do, and the limits of the provider.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// Total number of calls of all workers.
    pub(super) calls: usize,
    /// Number of processes that share the key; each has its share of the workers.
    pub(super) processes: usize,
    /// Requests and tokens per minute.
    pub(super) requests: u32,
    pub(super) tokens: u32,
    /// Minimum number of words of a prompt, and the range above it.
    pub(super) words: (usize, usize),
    /// Minimum of `max_tokens`, and the range above it.
    pub(super) answer: (usize, usize),
}

impl Scenario {
    /// Short calls, long calls, and short calls by two processes.
    pub(super) const ALL: [Self; 3] = [
        Self::short("requests bind", 1),
        Self { words: (20, 400), answer: (50, 300), ..Self::short("tokens bind", 1) },
        Self::short("requests bind, two processes on one key", 2),
    ];

    const fn short(name: &'static str, processes: usize) -> Self {
        Self {
            name,
            calls: 1_200,
            processes,
            requests: 600,
            tokens: 200_000,
            words: (10, 100),
            answer: (50, 200),
        }
    }

    /// A provider with these limits.
    pub(super) fn provider(&self, seed: u64) -> Result<Simulator> {
        simulator(self.limits(seed), seed)
    }

    /// The limits of the provider. Clients do not start with its clock, so the seed says how much of
    /// its first slice is over at the start.
    pub(super) fn limits(&self, seed: u64) -> Limits {
        Limits::new()
            .requests_per_minute(self.requests.into())
            .tokens_per_minute(self.tokens.into())
            .slice(SLICE)
            .phase(Duration::from_millis(seed * 137 % 1_000))
    }

    /// A provider with limits that are never reached.
    pub(super) fn generous(&self, seed: u64) -> Result<Simulator> {
        simulator(Limits::new(), seed)
    }

    /// The calls of a seed: short and long, with and without streaming.
    pub(super) fn work(&self, seed: u64) -> Vec<Call> {
        let mut dice = SplitMix(seed);
        let mut between = |(least, more): (usize, usize)| least + dice.below(more);
        let call = |_| {
            let text: String =
                (0..between(self.words)).map(|word| format!("word{} ", word % 97)).collect();
            let call = Call::new(Chat::user(text).max_tokens(between(self.answer) as u64));
            if between((0, 2)) == 0 { call.streamed() } else { call }
        };
        (0..self.calls).map(call).collect()
    }
}

fn simulator(limits: Limits, seed: u64) -> Result<Simulator> {
    // Virtual time does not wait for a vocabulary that is unpacked in real time.
    tidegate_providers::tokens::prepare();
    let [least, most] = LATENCY;
    let account = Account::new(Dialect::OpenAi, "bench", KEY)
        .model(MODEL, limits)
        .output(Output::between(20..=300))
        .first_token(Delay::between(least..=most));
    Ok(Simulator::builder().account(account).seed(seed).build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: Scenario = Scenario::ALL[0];

    #[test]
    fn the_same_seed_is_the_same_work() {
        let texts = |seed| format!("{:?}", SCENARIO.work(seed));
        assert_eq!(texts(1), texts(1));
        assert_ne!(texts(1), texts(2));
    }
}
