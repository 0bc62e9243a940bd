//! Whether calls use what is paid for, and are next to never refused, at every provider.

use std::time::Duration;

use tidegate_llm::plan::{Constraint, RawConstraint, Source};
use tidegate_llm::rate_limit::Account;
use tidegate_llm::{Credential, Dialect};
use tidegate_sim::{self as sim, Delay, Limits, Output, Simulator};

use crate::traffic::{self, KEY, LABEL, MODEL, Outcome, provider};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// How the client knows of limits.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// They were configured.
    Configured,
    /// The provider tells them.
    Told,
}

fn simulated(dialect: Dialect) -> sim::Dialect {
    match dialect {
        Dialect::OpenAi => sim::Dialect::OpenAi,
        Dialect::Azure => sim::Dialect::AzureOpenAi,
        Dialect::Anthropic => sim::Dialect::Anthropic,
        Dialect::Gemini => sim::Dialect::Gemini,
        Dialect::Groq => sim::Dialect::Groq,
        Dialect::Mistral => sim::Dialect::Mistral,
        Dialect::Together => sim::Dialect::Together,
        Dialect::OpenRouter => sim::Dialect::OpenRouter,
        Dialect::DeepSeek => sim::Dialect::DeepSeek,
        _ => sim::Dialect::Ollama,
    }
}

fn simulator(dialect: Dialect, limits: Limits, seed: u64) -> Simulator {
    let account = sim::Account::new(simulated(dialect), LABEL, KEY)
        .model(MODEL, limits)
        .output(Output::between(20..=300))
        .first_token(Delay::between(MILLI * 200..=MILLI * 900));
    Simulator::builder().account(account).seed(seed).build().unwrap()
}

/// Limits as a client and as the simulator write them.
#[derive(Clone, Debug, Default)]
struct Quota {
    requests: Option<u32>,
    tokens: Option<u32>,
    input: Option<u32>,
    output: Option<u32>,
}

impl Quota {
    fn limits(&self) -> Limits {
        let set = |limits: Limits, value: Option<u32>, add: fn(Limits, u64) -> Limits| match value {
            Some(value) => add(limits, value.into()),
            None => limits,
        };
        let limits = set(Limits::new(), self.requests, Limits::requests_per_minute);
        let limits = set(limits, self.tokens, Limits::tokens_per_minute);
        let limits = set(limits, self.input, Limits::input_tokens_per_minute);
        set(limits, self.output, Limits::output_tokens_per_minute).slice(SECOND)
    }

    fn constraint(&self) -> Constraint {
        let number = |value: Option<u32>| value.map(i64::from);
        let raw = RawConstraint {
            requests_per_minute: number(self.requests),
            tokens_per_minute: number(self.tokens),
            input_tokens_per_minute: number(self.input),
            output_tokens_per_minute: number(self.output),
            ..RawConstraint::default()
        };
        Constraint::try_new(&raw).unwrap()
    }
}

/// Six minutes of forty agents, of which the last five are measured.
async fn minutes(dialect: Dialect, quota: &Quota, known: Known, phase: u64) -> Outcome {
    let limits = quota.limits().phase(MILLI * u32::try_from(phase * 137 % 1_000).unwrap());
    let simulator = simulator(dialect, limits, phase);
    let builder = Account::builder(provider(dialect), &Credential::new(KEY));
    let builder = match known {
        Known::Configured => builder.limits(quota.constraint(), Source::Override),
        Known::Told => builder,
    };
    let account = builder.build().unwrap();
    traffic::run(&simulator, dialect, |_| account.clone(), SECOND * 360, phase).await
}

/// A provider that tells nothing and refuses what is above a number of calls at once: how much of
/// its places were used after the first minute, and what was refused.
async fn places(dialect: Dialect, hidden: u64, seed: u64) -> (Outcome, f64) {
    let limits = Limits::new().concurrency(hidden).queue(0);
    let simulator = simulator(dialect, limits, seed);
    let account = Account::builder(provider(dialect), &Credential::new(KEY)).build().unwrap();
    let end = SECOND * 360;
    let outcome = traffic::run(&simulator, dialect, |_| account.clone(), end, seed).await;
    let busy = simulator.ledger().entries().iter().filter(|entry| entry.refusal.is_none()).fold(
        Duration::ZERO,
        |busy, entry| {
            let ended = entry.ended.unwrap_or(end).min(end);
            busy + ended.saturating_sub(entry.at.max(SECOND * 60))
        },
    );
    let available = (end - SECOND * 60) * u32::try_from(hidden).unwrap();
    (outcome, busy.as_secs_f64() / available.as_secs_f64())
}

#[tokio::test(start_paused = true)]
async fn explore() {
    for hidden in [1, 2, 5, 12, 30] {
        for seed in 0..2 {
            let (outcome, used) = places(Dialect::DeepSeek, hidden, seed).await;
            println!("{hidden} {seed}: {outcome:?} {used:.3}");
        }
    }
    for seed in 0..2 {
        let (outcome, used) = places(Dialect::Ollama, 1, seed).await;
        println!("ollama {seed}: {outcome:?} {used:.3}");
    }
}
