//! Shared helpers: simulators, gateways in front of them, and requests.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tidegate::clock::TokioClock;
use tidegate::pacer::PoolSize;
use tidegate::{Engine, MemoryStore};
use tidegate_gateway::{Gateway, GatewayBuilder, ResponseBody, ResponseBodyError, Upstream};
use tidegate_llm::plan::{Constraint, RawConstraint};
use tidegate_providers::{Credential, Dialect};
use tidegate_sim::{self as sim, Limits, Output, Simulator};

use crate::transport::{self, ScriptedProvider};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MILLI: Duration = Duration::from_millis(1);
pub(crate) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub(crate) const KEY: &str = "sk-caller";
pub(crate) const ACCOUNT: &str = "main";
pub(crate) const MODEL: &str = "model-1";

/// The four dialect families: provider name, our dialect, the simulator's dialect.
pub(crate) const FAMILIES: [(&str, Dialect, sim::Dialect); 4] = [
    ("openai", Dialect::OpenAi, sim::Dialect::OpenAi),
    ("anthropic", Dialect::Anthropic, sim::Dialect::Anthropic),
    ("gemini", Dialect::Gemini, sim::Dialect::Gemini),
    ("ollama", Dialect::Ollama, sim::Dialect::Ollama),
];

/// A simulated account without limits whose responses have ten tokens.
pub(crate) fn account(dialect: sim::Dialect) -> sim::Account {
    sim::Account::new(dialect, ACCOUNT, KEY)
        .model(MODEL, Limits::new().concurrency(1_000))
        .output(Output::fixed(10))
}

pub(crate) fn simulator(account: sim::Account) -> Simulator {
    tidegate_providers::tokens::prepare();
    Simulator::builder().account(account).build().unwrap()
}

/// An upstream with up to 64 calls in flight.
pub(crate) fn upstream(name: &str, dialect: Dialect) -> Upstream {
    Upstream::new(name, dialect, "http://provider.test").unwrap().concurrency(PoolSize::Fixed(64))
}

/// An engine whose store uses tokio's clock.
pub(crate) fn engine() -> Engine {
    // The same counts in every run.
    tidegate_providers::tokens::prepare();
    Engine::on(MemoryStore::builder().clock(TokioClock::new()).build().unwrap())
}

/// Limits of `requests` per minute.
pub(crate) fn per_minute(requests: i64) -> Constraint {
    let requests_per_minute = Some(requests);
    Constraint::try_new(&RawConstraint { requests_per_minute, ..RawConstraint::default() }).unwrap()
}

pub(crate) fn gateway(simulator: &Simulator, upstream: Upstream) -> Gateway {
    let builder = Gateway::builder(&engine()).http(transport::http(simulator));
    builder.upstream(upstream).build().unwrap()
}

pub(crate) fn gateway_to(
    provider: &ScriptedProvider,
    upstreams: impl IntoIterator<Item = Upstream>,
) -> Gateway {
    let builder = Gateway::builder(&engine()).http(provider.clone());
    let builder = upstreams.into_iter().fold(builder, GatewayBuilder::upstream);
    builder.build().unwrap()
}

pub(crate) fn credential(text: &str) -> Credential {
    Credential::new(text)
}

/// Whether a response is streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Single,
    Stream,
}

/// A chat request in the format of a dialect, with a caller's key.
pub(crate) fn chat(name: &str, mode: Mode) -> Request<Full<Bytes>> {
    chat_with_key(name, mode, KEY)
}

pub(crate) fn chat_with_key(name: &str, mode: Mode, key: &str) -> Request<Full<Bytes>> {
    let is_stream = mode == Mode::Stream;
    let messages = [json!({ "role": "user", "content": "A river?" })];
    let (path, key_header, body) = match name {
        "anthropic" => (
            "/v1/messages".to_owned(),
            "x-api-key",
            json!({ "model": MODEL, "max_tokens": 20, "stream": is_stream, "messages": messages }),
        ),
        "gemini" => (
            match mode {
                Mode::Single => format!("/v1beta/models/{MODEL}:generateContent"),
                Mode::Stream => format!("/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"),
            },
            "x-goog-api-key",
            json!({ "contents": [{ "role": "user", "parts": [{ "text": "A river?" }] }] }),
        ),
        "ollama" => (
            "/api/chat".to_owned(),
            "x-no-key",
            json!({ "model": MODEL, "stream": is_stream, "messages": messages }),
        ),
        _ => ("/v1/chat/completions".to_owned(), "authorization", chat_body(name, mode)),
    };
    let key = if key_header == "authorization" { format!("Bearer {key}") } else { key.to_owned() };
    Request::post(format!("/{name}{path}"))
        .header(key_header, key)
        .header("content-type", "application/json")
        .header("anthropic-version", "2023-06-01")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap()
}

/// A chat request of the OpenAI API. Mistral always reports usage and rejects the usage option.
fn chat_body(name: &str, mode: Mode) -> Value {
    // A realistic length, for tests that look at tokens.
    let text = if name == "mistral" { "A river? ".repeat(100) } else { "A river?".to_owned() };
    let messages = [json!({ "role": "user", "content": text })];
    let mut body = json!({ "model": MODEL, "messages": messages, "max_tokens": 20 });
    if mode == Mode::Stream {
        body["stream"] = json!(true);
        if name != "mistral" {
            body["stream_options"] = json!({ "include_usage": true });
        }
    }
    body
}

/// A response that was read to its end.
#[derive(Debug)]
pub(crate) struct FullResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl FullResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Returns a header as text; empty if it is absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.header(name).parse().unwrap_or_else(|_| panic!("{name} in {:?}", self.headers))
    }
}

/// Sends a request and reads the response to its end.
pub(crate) async fn send(gateway: &Gateway, request: Request<Full<Bytes>>) -> FullResponse {
    read(gateway.handle(request, PEER).await).await.unwrap()
}

pub(crate) async fn read(
    response: Response<ResponseBody>,
) -> Result<FullResponse, ResponseBodyError> {
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(FullResponse { status: head.status, headers: head.headers, body })
}

/// Whether no call is queued or in flight at any provider.
pub(crate) fn is_idle(gateway: &Gateway) -> bool {
    gateway.status().iter().all(|status| status.queued == 0 && status.in_flight == 0)
}

/// Lets all ready tasks run.
pub(crate) async fn settle() {
    tokio::time::sleep(MILLI).await;
}
