//! Scenarios: the limits of a provider, and the work to do.

use std::time::Duration;

use anyhow::Result;
use tidegate_llm::Call;
use tidegate_providers::Chat;
use tidegate_sim::{Account, Delay, Dialect, Limits, Output, Simulator};

use crate::keys::SplitMix;
use crate::measure::as_float;

/// The key, the account and the model at the provider.
pub(super) const KEY: &str = "sk-bench";
pub(super) const MODEL: &str = "model-1";
/// Requests are counted in slices of this length, in seconds.
const SLICE: u64 = 1;
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

/// Requests and tokens of the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) requests: u64,
    pub(super) tokens: u64,
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
        let limits = Limits::new()
            .requests_per_minute(self.requests.into())
            .tokens_per_minute(self.tokens.into())
            .slice(Duration::from_secs(SLICE))
            .phase(phase(seed));
        simulator(limits, seed)
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

    /// The minimum time in seconds in which the provider admits all work: the start of the slice of
    /// the last request, or the time when enough tokens are refilled, whichever is later.
    pub(super) fn optimum(&self, work: Work, seed: u64) -> f64 {
        let slices = work.requests.div_ceil(self.per_slice());
        let last_slice = as_float(slices.saturating_sub(1) * SLICE) - phase(seed).as_secs_f64();
        let missing = as_float(work.tokens) - f64::from(self.tokens);
        last_slice.max(missing * 60.0 / f64::from(self.tokens)).max(0.0)
    }

    /// The share of the available quota that some work uses, by the limit of which it uses more.
    pub(super) fn share(&self, work: Work, after: Duration, seed: u64) -> f64 {
        let slices = (after + phase(seed)).as_secs() / SLICE + 1;
        let requests = as_float(slices * self.per_slice());
        let tokens = f64::from(self.tokens) * (1.0 + after.as_secs_f64() / 60.0);
        (as_float(work.requests) / requests).max(as_float(work.tokens) / tokens)
    }

    fn per_slice(&self) -> u64 {
        (u64::from(self.requests) * SLICE).div_ceil(60)
    }
}

/// The elapsed part of the first slice at the start, because clients do not start with the
/// provider's clock.
fn phase(seed: u64) -> Duration {
    Duration::from_millis(seed * 137 % 1_000)
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
    fn the_optimum_is_that_of_the_limit_that_binds() {
        // Half a second of the first slice is over at the start with this seed: 0.548 s.
        let optimum = |requests, tokens| SCENARIO.optimum(Work { requests, tokens }, 4);
        assert_eq!(optimum(10, 1_000), 0.0);
        assert!((optimum(11, 1_000) - 0.452).abs() < 1e-9);
        assert!((optimum(1_200, 200_000) - 118.452).abs() < 1e-9);
        assert!((optimum(1_200, 800_000) - 180.0).abs() < 1e-9);
    }

    #[test]
    fn all_of_the_quota_is_one() {
        let share = |requests, tokens, millis| {
            SCENARIO.share(Work { requests, tokens }, Duration::from_millis(millis), 4)
        };
        assert_eq!(share(10, 0, 451), 1.0);
        assert_eq!(share(10, 0, 453), 0.5);
        assert_eq!(share(1, 400_000, 60_000), 1.0);
    }

    #[test]
    fn the_same_seed_is_the_same_work() {
        let texts = |seed| format!("{:?}", SCENARIO.work(seed));
        assert_eq!(texts(1), texts(1));
        assert_ne!(texts(1), texts(2));
    }
}
