//! Traffic: agents of several workers that call a simulated provider.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_llm::adapter::Adapter;
use tidegate_llm::rate_limit::{Account, RateLimitLayer};
use tidegate_llm::retry::RetryLayer;
use tidegate_llm::{Call, CallError, CallResponse};
use tidegate_providers::request::Target;
use tidegate_providers::{Chat, Credential, Dialect};
use tidegate_sim::{Simulator, Usage};
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt as _};

use crate::wire;

/// Key, account and model of all simulators here.
pub(crate) const KEY: &str = "sk-test";
pub(crate) const LABEL: &str = "main";
pub(crate) const MODEL: &str = "model-1";

/// Four workers of ten agents.
pub(crate) const WORKERS: u64 = 4;
pub(crate) const AGENTS: u64 = 10;

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    /// Per mille of the calls that reached the provider.
    pub(crate) throttled_per_mille: f64,
    pub(crate) usage: Option<Usage>,
}

/// Deterministic random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Arc<AtomicU64>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)))
    }

    /// Always zero, for a network without delay.
    pub(crate) fn no_delay() -> Self {
        Self(Arc::new(AtomicU64::new(0)))
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        // Odd states stay odd, and zero stays zero.
        let step = |state: u64| match state {
            0 => 0,
            state => state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1) | 1,
        };
        let state = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |s| Some(step(s)));
        (state.unwrap_or(0) >> 33) % bound
    }
}

/// A network with a random delay of up to 20 ms.
#[derive(Clone, Debug)]
pub(crate) struct Jitter<H> {
    inner: H,
    dice: Dice,
}

impl<H, R> Service<R> for Jitter<H>
where
    H: Service<R> + Clone + Send + 'static,
    H::Future: Send,
    R: Send + 'static,
{
    type Response = H::Response;
    type Error = H::Error;
    type Future = Pin<Box<dyn Future<Output = Result<H::Response, H::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), H::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let mut inner = self.inner.clone();
        let delay = Duration::from_micros(self.dice.below(20_000));
        Box::pin(async move {
            sleep(delay).await;
            inner.call(request).await
        })
    }
}

/// An adapter to a simulator over a network with jitter.
pub(crate) fn adapter(
    simulator: &Simulator,
    dialect: Dialect,
    dice: &Dice,
) -> Adapter<Jitter<wire::Wire>> {
    let target = Target::new(dialect, "http://sim.test", MODEL, &Credential::new(KEY)).unwrap();
    let http = Jitter { inner: wire::http(simulator), dice: dice.clone() };
    Adapter::new(http, provider(dialect), target)
}

/// Provider name of a dialect.
pub(crate) fn provider(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenAi => "openai",
        Dialect::Azure => "azure",
        Dialect::Anthropic => "anthropic",
        Dialect::Gemini => "gemini",
        Dialect::Groq => "groq",
        Dialect::Mistral => "mistral",
        Dialect::Together => "together",
        Dialect::OpenRouter => "openrouter",
        Dialect::DeepSeek => "deepseek",
        Dialect::Ollama => "ollama",
        _ => "compatible",
    }
}

/// A random call: short or long, complete or streamed.
pub(crate) fn random_call(dice: &Dice) -> Call {
    let words = usize::try_from(20 + dice.below(400)).unwrap();
    let text = "the tide comes in and the tide goes out and ".repeat(words.div_ceil(10));
    // Some request far more output than any response has.
    let most = if dice.below(3) == 0 { 4_096 } else { 50 + dice.below(300) };
    let call = Call::new(Chat::user(text).max_tokens(most));
    if dice.below(2) == 0 { call.streamed() } else { call }
}

/// Runs agents that call through one account without a pause for `span`, all starting at once.
pub(crate) async fn run(
    simulator: &Simulator,
    dialect: Dialect,
    account: &Account,
    span: Duration,
    seed: u64,
) -> Outcome {
    let dice = Dice::new(seed);
    let start = Instant::now();
    let workers = (0..WORKERS).map(|worker| {
        let adapter = adapter(simulator, dialect, &dice);
        let model = stack(adapter, dialect, account, seed + worker);
        drive(model, AGENTS, dice.clone(), move || start.elapsed() < span)
    });
    let done = join_all(workers).await;
    let (completed, failed) = done.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let throttled_per_mille = throttled_per_mille(simulator);
    let usage = simulator.usage(LABEL, MODEL, Duration::from_secs(60)..span);
    Outcome { completed, failed, throttled_per_mille, usage }
}

/// Refused calls per mille of those that reached the provider.
pub(crate) fn throttled_per_mille(simulator: &Simulator) -> f64 {
    let ledger = simulator.ledger();
    ledger.throttled() as f64 * 1_000.0 / ledger.seen().max(1) as f64
}

/// An adapter with rate limits.
type Limited<A> = <RateLimitLayer as Layer<A>>::Service;

/// Wraps an adapter in rate limits and retries with default settings.
pub(crate) fn stack<A>(
    adapter: A,
    dialect: Dialect,
    account: &Account,
    seed: u64,
) -> <RetryLayer as Layer<Limited<A>>>::Service {
    let limits = RateLimitLayer::new(account.clone(), MODEL);
    RetryLayer::new(provider(dialect)).seed(seed).layer(limits.layer(adapter))
}

/// Runs agents while `should_continue` returns true. Returns the numbers of completed and failed
/// calls.
pub(crate) async fn drive<S>(
    model: S,
    agents: u64,
    dice: Dice,
    should_continue: impl Fn() -> bool + Clone + Send + 'static,
) -> (u64, u64)
where
    S: Service<Call, Response = CallResponse, Error = CallError> + Clone + Send + 'static,
    S::Future: Send,
{
    let agents = (0..agents).map(|_| {
        let (model, dice, should_continue) = (model.clone(), dice.clone(), should_continue.clone());
        tokio::spawn(async move {
            let (mut completed, mut failed) = (0, 0);
            while should_continue() {
                match ask(model.clone(), random_call(&dice)).await {
                    Ok(()) => completed += 1,
                    Err(_) => failed += 1,
                }
            }
            (completed, failed)
        })
    });
    let done = join_all(agents).await;
    let done = done.into_iter().map(Result::unwrap);
    done.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

async fn ask<S>(model: S, call: Call) -> Result<(), CallError>
where
    S: Service<Call, Response = CallResponse, Error = CallError>,
{
    model.oneshot(call).await?.into_reply().await.map(|_| ())
}
