//! Quota use and refusals at every provider.

use std::time::Duration;

use tidegate_llm::plan::{Constraint, ConstraintSource, RawConstraint};
use tidegate_llm::rate_limit::Account;
use tidegate_providers::{Credential, Dialect};
use tidegate_sim::{self as sim, Delay, Limits, Output, Simulator};
use tidegate_testkit::property::is_soak_run;

use crate::traffic::{self, KEY, LABEL, MODEL, Outcome, provider};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// How the client knows the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// From configuration.
    Configured,
    /// From the provider's reports.
    Reported,
}

fn sim_dialect(dialect: Dialect) -> sim::Dialect {
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
    let account = sim::Account::new(sim_dialect(dialect), LABEL, KEY)
        .model(MODEL, limits)
        .output(Output::between(20..=300))
        .first_token(Delay::between(MILLI * 200..=MILLI * 900));
    Simulator::builder().account(account).seed(seed).build().unwrap()
}

/// Limits in the form of the client and of the simulator.
#[derive(Clone, Debug, Default)]
struct TestLimits {
    requests: Option<u32>,
    tokens: Option<u32>,
    input: Option<u32>,
    output: Option<u32>,
}

impl TestLimits {
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

/// Runs forty agents for six minutes and measures the last five.
async fn run_six_minutes(
    dialect: Dialect,
    test_limits: &TestLimits,
    known: Known,
    phase: u64,
) -> Outcome {
    let limits = test_limits.limits().phase(MILLI * u32::try_from(phase * 137 % 1_000).unwrap());
    let simulator = simulator(dialect, limits, phase);
    let builder = Account::builder(provider(dialect), &Credential::new(KEY));
    let builder = match known {
        Known::Configured => builder.limits(test_limits.constraint(), ConstraintSource::Override),
        Known::Reported => builder,
    };
    let account = builder.build().unwrap();
    traffic::run(&simulator, dialect, &account, SECOND * 360, phase).await
}

/// Runs a provider that reports nothing and refuses calls above a hidden concurrency. Returns the
/// outcome and the fraction of slots used after the first minute.
async fn run_hidden_concurrency(dialect: Dialect, hidden: u64, seed: u64) -> (Outcome, f64) {
    let limits = Limits::new().concurrency(hidden).queue(0);
    let simulator = simulator(dialect, limits, seed);
    let account = Account::builder(provider(dialect), &Credential::new(KEY)).build().unwrap();
    let end = SECOND * 360;
    let outcome = traffic::run(&simulator, dialect, &account, end, seed).await;
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

/// Phases to test: all twenty in a soak test.
fn phases(few: u64) -> std::ops::Range<u64> {
    0..if is_soak_run() { 20 } else { few }
}

/// Checks that no call fails, at most one in two hundred is refused, and 97 % of the binding limit
/// is used.
async fn check(dialect: Dialect, test_limits: &TestLimits, phases: std::ops::Range<u64>) {
    for known in [Known::Configured, Known::Reported] {
        for phase in phases.clone() {
            let outcome = run_six_minutes(dialect, test_limits, known, phase).await;
            let about = format!("{dialect:?} {known:?} {phase} {test_limits:?}: {outcome:?}");
            assert_eq!(outcome.failed, 0, "{about}");
            assert!(outcome.completed >= 200, "{about}");
            assert!(outcome.throttled_per_mille <= 5.0, "{about}");
            let usage = outcome.usage.unwrap();
            assert!(usage.ratio() >= 0.97, "{about}");
            // Only the rest of the first minute may exceed the rate.
            assert!(usage.ratio() <= 1.2, "{about}");
        }
    }
}

const PLENTY: Option<u32> = Some(10_000_000);

/// 600 requests per minute bind.
fn by_requests() -> TestLimits {
    TestLimits { requests: Some(600), tokens: PLENTY, ..TestLimits::default() }
}

/// 200,000 tokens per minute bind.
fn by_tokens() -> TestLimits {
    TestLimits { requests: Some(6_000), tokens: Some(200_000), ..TestLimits::default() }
}

#[tokio::test(start_paused = true)]
async fn openai_by_requests_in_every_phase() {
    check(Dialect::OpenAi, &by_requests(), 0..20).await;
}

#[tokio::test(start_paused = true)]
async fn openai_by_tokens() {
    check(Dialect::OpenAi, &by_tokens(), phases(2)).await;
}

#[tokio::test(start_paused = true)]
async fn azure() {
    check(Dialect::Azure, &by_requests(), phases(2)).await;
    check(Dialect::Azure, &by_tokens(), phases(1)).await;
}

#[tokio::test(start_paused = true)]
async fn anthropic() {
    let by_requests =
        TestLimits { requests: Some(600), input: PLENTY, output: PLENTY, tokens: None };
    check(Dialect::Anthropic, &by_requests, phases(2)).await;
    let by_output = TestLimits { requests: Some(6_000), output: Some(100_000), ..by_requests };
    check(Dialect::Anthropic, &by_output, phases(1)).await;
    let by_input = TestLimits { input: Some(100_000), output: PLENTY, ..by_output };
    check(Dialect::Anthropic, &by_input, phases(1)).await;
}

/// Gemini reports limits only in error bodies.
#[tokio::test(start_paused = true)]
async fn gemini() {
    let by_requests = TestLimits { requests: Some(600), input: PLENTY, ..TestLimits::default() };
    check(Dialect::Gemini, &by_requests, phases(2)).await;
    let by_input = TestLimits { requests: Some(6_000), input: Some(100_000), ..by_requests };
    check(Dialect::Gemini, &by_input, phases(2)).await;
}

/// Groq reports requests per day, and those per minute only in error bodies.
#[tokio::test(start_paused = true)]
async fn groq() {
    check(Dialect::Groq, &by_requests(), phases(2)).await;
    check(Dialect::Groq, &by_tokens(), phases(1)).await;
}

#[tokio::test(start_paused = true)]
async fn mistral() {
    check(Dialect::Mistral, &by_requests(), phases(2)).await;
    check(Dialect::Mistral, &by_tokens(), phases(1)).await;
}

/// Together reports limits per second.
#[tokio::test(start_paused = true)]
async fn together() {
    check(Dialect::Together, &by_requests(), phases(2)).await;
}

/// OpenRouter reports limits only with errors.
#[tokio::test(start_paused = true)]
async fn openrouter() {
    check(Dialect::OpenRouter, &by_requests(), phases(2)).await;
}

/// Without reports, at most 3 % are refused and 85 % is used.
#[tokio::test(start_paused = true)]
async fn deepseek_with_an_unreported_concurrency_limit() {
    for hidden in [2, 5, 12, 30] {
        for seed in phases(1) {
            let (outcome, used) = run_hidden_concurrency(Dialect::DeepSeek, hidden, seed).await;
            let about = format!("concurrency {hidden}, {seed}: {outcome:?}, {used:.3} used");
            assert_eq!(outcome.failed, 0, "{about}");
            assert!(outcome.throttled_per_mille <= 30.0, "{about}");
            assert!(used >= 0.85, "{about}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ollama_serves_calls_one_by_one() {
    let (outcome, used) = run_hidden_concurrency(Dialect::Ollama, 1, 0).await;
    assert_eq!((outcome.failed, outcome.throttled_per_mille), (0, 0.0), "{outcome:?}");
    assert!(used >= 0.85, "{used}");
}

/// Reserves are settled with actual usage: in the long run our charges equal the provider's within
/// 1 %.
#[tokio::test(start_paused = true)]
async fn token_charges_match_those_of_the_provider() {
    for dialect in [Dialect::Anthropic, Dialect::Mistral] {
        let test_limits = match dialect {
            Dialect::Anthropic => TestLimits {
                requests: Some(600),
                input: Some(300_000),
                output: Some(300_000),
                tokens: None,
            },
            _ => TestLimits { tokens: Some(300_000), ..by_requests() },
        };
        let simulator = simulator(dialect, test_limits.limits(), 3);
        let account = Account::builder(provider(dialect), &Credential::new(KEY)).build().unwrap();
        traffic::run(&simulator, dialect, &account, SECOND * 360, 3).await;
        let entries = simulator.ledger().entries();
        let provider: u64 = entries.iter().map(|entry| entry.charged.total()).sum();
        let ours = account.net_charges(MODEL).into_iter();
        let ours = ours.filter(|(dimension, _)| dimension.counts_tokens());
        let ours: u64 = ours.map(|(_, charged)| charged).sum();
        let error = ours.abs_diff(provider) as f64 / provider as f64;
        assert!(error < 0.01, "{dialect:?}: {ours} here, {provider} there");
    }
}
