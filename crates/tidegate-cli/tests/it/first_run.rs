//! First setup: errors that are reported before the program runs, hints about paths, and calls to
//! providers through proxies, with custom root certificates and mapped model names.

mod check;
mod models;
mod paths;
mod proxies;
mod roots;
mod strict;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tidegate_sim::{Account, Dialect, Limits};

use crate::outbound::fixtures::{KEY, Provider};
use crate::program::{Serving, serve};

/// Starts an OpenAI-like provider with one model and one key.
fn provider(model: &str) -> Provider {
    Provider::start(Account::new(Dialect::OpenAi, "account", KEY).model(model, Limits::new()))
}

/// Returns the address of a provider.
fn address(provider: &Provider) -> SocketAddr {
    provider.url.trim_start_matches("http://").parse().unwrap()
}

/// Returns a `serve` command with this configuration file and without a database.
fn serve_text(folder: &Path, text: &str) -> Command {
    std::fs::write(folder.join("tidegate.toml"), text).unwrap();
    serve(folder, &["--database", "none"])
}

/// A response of the OpenAI API.
#[derive(Debug)]
struct Answer {
    status: u16,
    provider: Option<String>,
    model: Option<String>,
    body: Value,
}

/// Sends a chat request through the program.
fn chat(serving: &Serving, provider: &str, model: &str) -> Answer {
    let body = json!({ "model": model, "messages": [{ "role": "user", "content": "Tide?" }] });
    let agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
    let agent: ureq::Agent = agent.into();
    let request = agent.post(format!("{}/{provider}/v1/chat/completions", serving.url));
    let request = request.header("authorization", format!("Bearer {KEY}"));
    let sent = request.header("content-type", "application/json").send(body.to_string());
    let mut response = sent.unwrap();
    let header = |name| response.headers().get(name).map(|it| it.to_str().unwrap().to_owned());
    let (provider, model) = (header("x-tidegate-provider"), header("x-tidegate-model"));
    let body = response.body_mut().read_to_string().unwrap();
    let status = response.status().as_u16();
    Answer { status, provider, model, body: serde_json::from_str(&body).unwrap_or_default() }
}
