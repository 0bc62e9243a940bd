//! A hundred calls to one model within its limits: none is refused, none is lost.
//!
//! `cargo run -p tidegate-examples --bin hundred-calls`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use anyhow::Result;
use futures_util::future::try_join_all;
use tidegate_llm::client::Client;
use tidegate_llm::models::{Models, Profile};
use tidegate_llm::settings::RateLimitSettings;
use tidegate_llm::{Chat, Credential};
use tidegate_sim::{Account, Dialect, Limits, Output, Simulator};
use tokio::time::Instant;

const CALLS: u32 = 100;

#[tokio::main]
async fn main() -> Result<()> {
    let simulator = provider()?;
    let base_url = tidegate_examples::serve(&simulator).await?;

    // Your program reads the key from its configuration, and needs no base URL.
    let profile = Profile::new().credential(Credential::new("sk-example")).base_url(base_url);
    let models = Models::builder().http(Client::new()?).provider("openai", profile).build();

    // Limits of the account: a burst of 50, then ten per second, with eight concurrent calls.
    let limits = RateLimitSettings::new()
        .requests_per_minute(600)
        .burst(50)
        .tokens_per_minute(90_000)
        .concurrency(8);
    let model = models.load_model("openai", "gpt-4o").rate_limit(limits).retry(true).build()?;

    // All calls start together; each waits until the limits permit it.
    let begin = Instant::now();
    let calls = (1..=CALLS).map(|number| {
        let chat = Chat::user(format!("Name river number {number}.")).max_tokens(20);
        model.invoke(chat)
    });
    let replies = try_join_all(calls).await?;

    let tokens: u64 =
        replies.iter().filter_map(|reply| reply.usage).map(|usage| usage.total()).sum();
    let seconds = begin.elapsed().as_secs_f64();
    println!("{} of {CALLS} calls answered in {seconds:.1} s, {tokens} tokens", replies.len());
    Ok(())
}

/// A provider that refuses calls above its limits.
fn provider() -> Result<Simulator> {
    let limits = Limits::new().requests_per_minute(600).tokens_per_minute(90_000);
    let account = Account::new(Dialect::OpenAi, "main", "sk-example")
        .model("gpt-4o", limits)
        .output(Output::fixed(6));
    Ok(Simulator::builder().account(account).build()?)
}
