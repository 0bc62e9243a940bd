//! Errors of providers, read and classed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bodies;
mod limits;
mod properties;
mod requirements;
mod rules;
mod simulated;

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Response};
use serde_json::Value;
use tidegate_llm::codec::classify::Rules;
use tidegate_llm::codec::failure;
use tidegate_llm::{Class, Dialect, Dimension, Failure, Provider};

/// When the answers of these tests are sent.
const DATE: &str = "Sat, 31 Jan 2026 12:00:00 GMT";

const DIALECTS: [Dialect; 11] = [
    Dialect::OpenAi,
    Dialect::Azure,
    Dialect::Anthropic,
    Dialect::Gemini,
    Dialect::Groq,
    Dialect::Mistral,
    Dialect::Together,
    Dialect::OpenRouter,
    Dialect::DeepSeek,
    Dialect::Ollama,
    Dialect::Compatible,
];

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("date", HeaderValue::from_static(DATE));
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// An answer with an error, as it is read.
fn failed(dialect: Dialect, status: u16, fields: &[(&str, &str)], body: &Value) -> Failure {
    failed_by(&Rules::new(), dialect, status, fields, body)
}

fn failed_by(
    rules: &Rules,
    dialect: Dialect,
    status: u16,
    fields: &[(&str, &str)],
    body: &Value,
) -> Failure {
    let mut answer = Response::builder().status(status).body(()).unwrap();
    *answer.headers_mut() = headers(fields);
    let (parts, ()) = answer.into_parts();
    let provider = Provider::new("someone");
    failure::of_response(dialect, &provider, &parts, body.to_string().as_bytes(), rules)
}

/// An error in a stream, as it is read.
fn broken(dialect: Dialect, body: &Value) -> Failure {
    failure::in_stream(dialect, &Provider::new("someone"), body, &Rules::new())
}

const fn limited(after: Option<Duration>, dimension: Option<Dimension>) -> Class {
    Class::RateLimited { after, dimension }
}

const fn spent(after: Option<Duration>) -> Class {
    Class::LongQuota { after }
}

const fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}
