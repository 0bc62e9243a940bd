//! Adapters in every dialect: against the simulator, canned responses, real sockets and the mock.

mod failing;
mod mocked;
mod simulated;
mod slow;
#[cfg(feature = "client")]
mod sockets;
#[cfg(feature = "client")]
mod unreachable;

use http::{HeaderName, HeaderValue};
use tidegate_llm::adapter::Adapter;
use tidegate_llm::{Call, CallError, CallResponse};
use tidegate_providers::request::Target;
use tidegate_providers::{Chat, Credential, Dialect};
use tidegate_sim::{Account, Limits, Simulator};
use tower::ServiceExt as _;

use crate::wire::{self, Wire};

/// Dialects of the simulator and their equivalents.
const DIALECTS: [(tidegate_sim::Dialect, Dialect); 11] = [
    (tidegate_sim::Dialect::OpenAi, Dialect::OpenAi),
    (tidegate_sim::Dialect::AzureOpenAi, Dialect::Azure),
    (tidegate_sim::Dialect::Anthropic, Dialect::Anthropic),
    (tidegate_sim::Dialect::Gemini, Dialect::Gemini),
    (tidegate_sim::Dialect::Groq, Dialect::Groq),
    (tidegate_sim::Dialect::Mistral, Dialect::Mistral),
    (tidegate_sim::Dialect::Together, Dialect::Together),
    (tidegate_sim::Dialect::OpenRouter, Dialect::OpenRouter),
    (tidegate_sim::Dialect::DeepSeek, Dialect::DeepSeek),
    (tidegate_sim::Dialect::Ollama, Dialect::Ollama),
    (tidegate_sim::Dialect::OpenAi, Dialect::Compatible),
];

/// An account `main` with a model `m`.
fn account(dialect: tidegate_sim::Dialect) -> Account {
    Account::new(dialect, "main", "secret-key").model("m", Limits::new())
}

fn simulator(account: Account) -> Simulator {
    Simulator::builder().account(account).build().unwrap()
}

/// The model `m` of that account, with extra headers for the simulator.
fn target(dialect: Dialect, base_url: &str, headers: &[(&'static str, &'static str)]) -> Target {
    let key = Credential::new("secret-key");
    let target = Target::new(dialect, base_url, "m", &key).unwrap();
    headers.iter().fold(target, |target, (name, value)| {
        target.header(HeaderName::from_static(name), HeaderValue::from_static(value))
    })
}

/// An adapter whose responses have ten tokens.
fn adapter(simulator: &Simulator, dialect: Dialect) -> Adapter<Wire> {
    let target = target(dialect, "http://sim", &[("x-sim-output-tokens", "10")]);
    Adapter::new(wire::http(simulator), "sim", target)
}

fn call() -> Call {
    Call::new(Chat::user("12345678"))
}

async fn send(adapter: &Adapter<Wire>, call: Call) -> Result<CallResponse, CallError> {
    adapter.clone().oneshot(call).await
}
