//! Classification of provider errors.

mod bodies;
mod limits;
mod properties;
mod requirements;
mod rules;
mod simulated;

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Response};
use serde_json::Value;
use tidegate_core::WallTime;
use tidegate_providers::classify::ClassificationRules;
use tidegate_providers::{Class, Dialect, Dimension, Failure, Provider};

/// Date header of the responses.
const DATE: &str = "Sat, 31 Jan 2026 12:00:00 GMT";

/// When the responses are read. Their date header takes precedence.
const NOW: WallTime = WallTime::from_secs(1_800_000_000);

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

/// Classifies an error response.
fn failed(dialect: Dialect, status: u16, fields: &[(&str, &str)], body: &Value) -> Failure {
    failed_with_rules(&ClassificationRules::new(), dialect, status, fields, body)
}

fn failed_with_rules(
    rules: &ClassificationRules,
    dialect: Dialect,
    status: u16,
    fields: &[(&str, &str)],
    body: &Value,
) -> Failure {
    let mut answer = Response::builder().status(status).body(()).unwrap();
    *answer.headers_mut() = headers(fields);
    let (parts, ()) = answer.into_parts();
    let provider = Provider::new("someone");
    Failure::of_response(dialect, &provider, &parts, body.to_string().as_bytes(), rules, NOW)
}

/// Classifies an error in a stream.
fn failed_in_stream(dialect: Dialect, body: &Value) -> Failure {
    Failure::in_stream(dialect, &Provider::new("someone"), body, &ClassificationRules::new(), NOW)
}

const fn rate_limited(after: Option<Duration>, dimension: Option<Dimension>) -> Class {
    Class::RateLimited { after, dimension }
}

const fn exhausted(after: Option<Duration>) -> Class {
    Class::ExhaustedQuota { after }
}

const fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}
