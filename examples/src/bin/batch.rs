//! Five hundred prompts by forty tasks, as fast as the provider allows.
//!
//! `cargo run -p tidegate-examples --bin batch`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use tidegate_llm::client::Client;
use tidegate_llm::models::{Model, Models, Profile};
use tidegate_llm::settings::RateLimitSettings;
use tidegate_llm::telemetry::{Acquired, Observer};
use tidegate_llm::{Chat, Credential, Provider, Usage};
use tidegate_sim::{Account, Delay, Dialect, Limits, Output, Simulator};
use tokio::task::JoinSet;
use tokio::time::Instant;

const PROMPTS: usize = 500;
const TASKS: usize = 40;
/// Calls per second that the provider allows, and the rate used. At exactly the limit a call would
/// be refused now and then, because of clock differences and network latency.
const ALLOWED: u64 = 40;
const USED: u32 = 35;

/// Counts events.
#[derive(Debug, Default)]
struct Counts {
    waited_ms: AtomicU64,
    throttled: AtomicU64,
}

impl Observer for Counts {
    fn acquired(&self, acquired: &Acquired<'_>) {
        let millis = u64::try_from(acquired.wait.as_millis()).unwrap_or(u64::MAX);
        self.waited_ms.fetch_add(millis, Ordering::Relaxed);
    }

    fn throttled(&self, _provider: &Provider, _limiter_key: &str, _pause: Duration) {
        self.throttled.fetch_add(1, Ordering::Relaxed);
    }
}

/// State shared by the tasks.
struct Batch {
    model: Model,
    prompts: Mutex<Vec<String>>,
    counts: Arc<Counts>,
    tokens: AtomicU64,
    bar: ProgressBar,
}

#[tokio::main]
async fn main() -> Result<()> {
    let simulator = provider()?;
    let base_url = tidegate_examples::serve(&simulator).await?;
    let counts = Arc::new(Counts::default());
    let batch = Arc::new(Batch {
        model: model(base_url, counts.clone())?,
        prompts: Mutex::new((1..=PROMPTS).map(|n| format!("Summarise page {n}.")).collect()),
        counts,
        tokens: AtomicU64::new(0),
        bar: bar()?,
    });

    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        tasks.spawn(batch.clone().work());
    }
    let (mut answered, mut failed) = (0, 0);
    while let Some(done) = tasks.join_next().await {
        let (well, badly) = done?;
        (answered, failed) = (answered + well, failed + badly);
    }
    batch.bar.finish_and_clear();

    let seconds = start.elapsed().as_secs_f64();
    let waited = batch.counts.waited_ms.load(Ordering::Relaxed) / PROMPTS as u64;
    println!("{answered} of {PROMPTS} prompts answered, {failed} failed");
    println!("{seconds:.1} s in all; a call waited {waited} ms for its turn on average");
    println!("{} answers were 429", batch.counts.throttled.load(Ordering::Relaxed));
    println!("{} tokens", batch.tokens.load(Ordering::Relaxed));
    Ok(())
}

/// A model with a configured rate, and retries.
fn model(base_url: String, counts: Arc<Counts>) -> Result<Model> {
    let profile = Profile::new()
        .credential(Credential::new("sk-example"))
        .base_url(base_url)
        // More than needed, so that only the rate limits the calls.
        .max_concurrent_requests(32);
    let models =
        Models::builder().http(Client::new()?).provider("openai", profile).observer(counts).build();
    // Without this, a minute's worth of calls could be sent at once.
    let limits = RateLimitSettings::new().requests_per_minute(USED * 60).burst(2);
    Ok(models.load_model("openai", "gpt-4o").rate_limit(limits).retry(true).build()?)
}

impl Batch {
    /// Processes prompts until there are none left. Returns the numbers of successes and failures.
    async fn work(self: Arc<Self>) -> (u64, u64) {
        let (mut answered, mut failed) = (0, 0);
        while let Some(prompt) = self.next() {
            match self.model.invoke(Chat::user(prompt).max_tokens(100)).await {
                Ok(reply) => {
                    answered += 1;
                    let tokens = reply.usage.as_ref().map_or(0, Usage::total);
                    self.tokens.fetch_add(tokens, Ordering::Relaxed);
                }
                // A real program would record it for another attempt.
                Err(_) => failed += 1,
            }
            self.show();
        }
        (answered, failed)
    }

    fn next(&self) -> Option<String> {
        self.prompts.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn show(&self) {
        let gauges = self.model.account().and_then(|account| account.gauges(self.model.name()));
        let waiting = gauges.map_or(0, |gauges| gauges.waiting);
        let throttled = self.counts.throttled.load(Ordering::Relaxed);
        let tokens = self.tokens.load(Ordering::Relaxed);
        self.bar.set_message(format!("{waiting} waiting, {throttled} 429s, {tokens} tokens"));
        self.bar.inc(1);
    }
}

/// A progress bar; not drawn if standard error is not a terminal.
fn bar() -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} done, {elapsed}  {msg}")?;
    Ok(ProgressBar::new(PROMPTS as u64).with_style(style))
}

/// A provider that counts requests in slices of one second, as OpenAI and Azure do.
fn provider() -> Result<Simulator> {
    let limits = Limits::new().requests_per_minute(ALLOWED * 60).slice(Duration::from_secs(1));
    let account = Account::new(Dialect::OpenAi, "main", "sk-example")
        .model("gpt-4o", limits)
        .output(Output::between(20..=80))
        .first_token(Delay::between(Duration::from_millis(100)..=Duration::from_millis(400)));
    Ok(Simulator::builder().account(account).seed(7).build()?)
}
