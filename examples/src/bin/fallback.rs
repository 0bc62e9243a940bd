//! Two providers: if the first is overloaded or out of quota, the second one answers.
//!
//! `cargo run -p tidegate-examples --bin fallback`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use anyhow::Result;
use tidegate_llm::client::Client;
use tidegate_llm::models::{Model, Models, Profile};
use tidegate_llm::{Chat, Credential};
use tidegate_sim::{Account, Dialect, Fault, Limits, Output, Simulator};

#[tokio::main]
async fn main() -> Result<()> {
    let simulator = providers()?;
    let base_url = tidegate_examples::serve(&simulator).await?;

    let profile = |key| Profile::new().credential(Credential::new(key)).base_url(&*base_url);
    let models = Models::builder()
        .http(Client::new()?)
        .provider("openai", profile("sk-first"))
        .provider("anthropic", profile("sk-second"))
        .build();

    // Each provider has its own limits. The second one is tried before any retry, and only while no
    // part of a response has been delivered.
    let model = models
        .load_model("openai", "gpt-4o")
        .rate_limit(true)
        .fallback_to(["anthropic/claude-haiku"])
        .retry(true)
        .build()?;
    println!("loaded {model}");

    ask(&model, "all is well").await?;

    simulator.inject("first", Fault::Overloaded, 1)?;
    ask(&model, "the first is overloaded").await?;
    ask(&model, "it has recovered").await?;

    simulator.inject("first", Fault::InsufficientQuota, 1)?;
    ask(&model, "the first has no credit left").await?;
    // The exhausted quota is remembered, so the first provider is not called again.
    ask(&model, "it still has none").await?;

    for label in ["first", "second"] {
        let seen = simulator.ledger().count(|entry| entry.account.as_deref() == Some(label));
        println!("the {label} was asked {seen} times");
    }
    Ok(())
}

/// Makes a call and prints which provider answers.
async fn ask(model: &Model, what: &str) -> Result<()> {
    let answer = model.stream(Chat::user("Name a river.").max_tokens(50)).await?;
    let provider = answer.provider().clone();
    let reply = answer.into_reply().await?;
    println!("{what}: {provider} answers {:?}", reply.text);
    Ok(())
}

/// Two providers in one simulator; the API key determines the provider.
fn providers() -> Result<Simulator> {
    let first = Account::new(Dialect::OpenAi, "first", "sk-first")
        .model("gpt-4o", Limits::new())
        .output(Output::fixed(3));
    let second = Account::new(Dialect::Anthropic, "second", "sk-second")
        .model("claude-haiku", Limits::new())
        .output(Output::fixed(3));
    Ok(Simulator::builder().account(first).account(second).build()?)
}
