//! A planner and a pipeline: which limits a call gets and why, and users with limits of their own.
//!
//! `cargo run -p tidegate-examples --bin planner`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use anyhow::Result;
use tidegate_llm::adapter::{Adapter, Target};
use tidegate_llm::client::Client;
use tidegate_llm::pipeline::{Command, Pipeline, Planned, RateLimitHandler};
use tidegate_llm::plan::{PlanRequest, Planner, RawConstraint};
use tidegate_llm::retry::RetryLayer;
use tidegate_llm::{Call, Chat, Credential, Dialect, Provider};
use tidegate_sim::{Account, Limits, Output, Simulator};
use tokio::time::Instant;

/// What the program knows of a call. Key functions see it; it is not sent to the provider. Each
/// attempt has a clone.
#[derive(Clone)]
struct Session {
    user: &'static str,
}

#[tokio::main]
async fn main() -> Result<()> {
    let planner = Planner::default();
    let gemini = PlanRequest::new().provider("gemini").model("gemini-2.5-flash");
    let ours = RawConstraint { requests_per_minute: Some(120), ..RawConstraint::default() };
    let requests = [
        ("a tier", gemini.clone().tier("tier_2")),
        ("no tier", gemini.clone()),
        ("a model without a row", gemini.clone().model("gemini-next").tier("tier_2")),
        ("another provider", PlanRequest::new().model("gpt-4o").tier("tier_1")),
        ("limits of our own", gemini.clone().rate_limits(ours.clone())),
    ];
    for (what, request) in &requests {
        println!("{what}: {}", planner.plan(request)?);
    }
    if let Err(error) = planner.plan(&gemini.clone().tier("gold")) {
        println!("a tier that is not known: {error}");
    }

    let simulator = provider()?;
    let base_url = tidegate_examples::serve(&simulator).await?;
    let key = Credential::new("sk-example");
    let target = Target::new(Dialect::Gemini, &base_url, "gemini-2.5-flash", &key)?;
    let api = Adapter::new(Client::new()?, "gemini", target);

    // The key decides who shares a bucket; by default it is provider, model and tier.
    let by_user = |_: &Provider, planned: &Planned<Command<Session>>| {
        vec!["user".to_owned(), planned.command.context.user.to_owned()]
    };
    let limits = RateLimitHandler::new().key_extractor(by_user);
    // Every attempt waits for the limits, so the retries are around them.
    let mut pipeline = Pipeline::new(planner, limits, api).layer(&RetryLayer::new("gemini"));

    let request = gemini.rate_limits(ours);
    for user in ["ann", "ann", "bob", "ann"] {
        let (call, began) = (Call::new(Chat::user("A river?").max_tokens(50)), Instant::now());
        let reply = pipeline.run(&request, Command::new(call, Session { user })).await?;
        let waited = began.elapsed().as_secs_f64();
        println!("{user}: {:?} after {waited:.1} s", reply.text);
    }
    Ok(())
}

fn provider() -> Result<Simulator> {
    let account = Account::new(tidegate_sim::Dialect::Gemini, "main", "sk-example")
        .model("gemini-2.5-flash", Limits::new())
        .output(Output::fixed(3));
    Ok(Simulator::builder().account(account).build()?)
}
