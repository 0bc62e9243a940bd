//! One model with a rate limit and retries: complete and streamed calls, and what they waited for.
//!
//! `cargo run -p tidegate-examples --bin one-provider`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tidegate_llm::client::Client;
use tidegate_llm::models::{Models, Profile};
use tidegate_llm::settings::RateLimitSettings;
use tidegate_llm::telemetry::{Acquired, Observer};
use tidegate_llm::{Chat, Class, Credential, Event, Provider};
use tidegate_sim::{Account, Delay, Dialect, Fault, Limits, Output, Simulator};

/// Prints the events of a call. Without an observer, they go to `tracing`.
#[derive(Debug)]
struct Shown;

impl Observer for Shown {
    fn acquired(&self, acquired: &Acquired<'_>) {
        let (wait, why) = (acquired.wait.as_secs_f64(), acquired.limited_by);
        if let Some(why) = why {
            println!("   waited {wait:.1} s for its turn ({why})");
        }
    }

    fn failed(&self, _: &Provider, class: Class, attempt: u32, next_after: Option<Duration>) {
        let class = class.name();
        match next_after {
            Some(delay) => {
                let delay = delay.as_secs_f64();
                println!("   attempt {attempt} failed ({class}), the next one in {delay:.1} s");
            }
            None => println!("   attempt {attempt} failed ({class}), there is no other"),
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let simulator = provider()?;
    let base_url = tidegate_examples::serve(&simulator).await?;

    // One registry per program: models of the same provider and key share their limits.
    let profile = Profile::new().credential(Credential::new("sk-example")).base_url(base_url);
    let models = Models::builder()
        .http(Client::new()?)
        .provider("openai", profile)
        .observer(Arc::new(Shown))
        .build();

    // A burst of two calls, then one every half second.
    let limits = RateLimitSettings::new().requests_per_minute(120).burst(2);
    let model = models.load_model("openai", "gpt-4o").rate_limit(limits).retry(true).build()?;
    println!("loaded {model}");

    for number in 1..=4 {
        println!("call {number}, whole");
        let reply = model.invoke(Chat::user("Name a river.").max_tokens(50)).await?;
        let tokens = reply.usage.map_or(0, |usage| usage.total());
        println!("   {:?}, {tokens} tokens", reply.text);
    }

    println!("call 5, streamed");
    let mut answer = model.stream(Chat::user("Name a sea.").max_tokens(50)).await?;
    let mut pieces = 0;
    // The call's permit is held until the end of the stream, and settled with the actual usage.
    while let Some(event) = answer.next().await {
        if let Event::Text(_) = event? {
            pieces += 1;
        }
    }
    println!("   {pieces} pieces");

    // The provider refuses one call, with a delay for the retry.
    simulator.inject(
        "main",
        Fault::RateLimited { retry_after: Some(Duration::from_secs(1)) },
        1,
    )?;
    println!("call 6, refused once");
    model.invoke(Chat::user("Name a lake.").max_tokens(50)).await?;
    println!("   answered");
    Ok(())
}

/// A provider that answers after a tenth of a second.
fn provider() -> Result<Simulator> {
    let account = Account::new(Dialect::OpenAi, "main", "sk-example")
        .model("gpt-4o", Limits::new().requests_per_minute(500).tokens_per_minute(30_000))
        .output(Output::fixed(6))
        .first_token(Delay::fixed(Duration::from_millis(100)));
    Ok(Simulator::builder().account(account).build()?)
}
