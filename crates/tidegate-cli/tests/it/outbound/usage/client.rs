//! A caller of any API that can disconnect in the middle of a response.

use std::io::Read as _;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{CONTENT_CODING, Dialect};

use super::super::fixtures::{Gateway, KEY, Sdk};

/// The model of all calls.
pub(super) const MODEL: &str = "tidal-1";

/// Words that are one token each, for the simulator and the tokenizer.
const PROMPT: &str = "the sea ran out and the sun was low but not yet ";

/// Options of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) is_streamed: bool,
    /// `stream_options.include_usage`, which only OpenAI's API has.
    pub(super) asks_for_usage: bool,
    pub(super) coding: Option<&'static str>,
    /// Number of bytes after which the caller disconnects.
    pub(super) leaves_after: Option<usize>,
}

/// Makes a call and returns the status and the received part of the body.
pub(super) fn call(gateway: &Gateway, sdk: Sdk, options: Options) -> (u16, Vec<u8>) {
    let prompt = PROMPT.repeat(30);
    let messages = json!([{ "role": "user", "content": prompt }]);
    let mut body = json!({ "model": MODEL, "messages": messages, "stream": options.is_streamed });
    let mut path = "/chat/completions".to_owned();
    match sdk.dialect {
        Dialect::Anthropic => {
            body["max_tokens"] = json!(10_000);
            path = "/v1/messages".to_owned();
        }
        Dialect::Gemini => {
            body = json!({ "contents": [{ "role": "user", "parts": [{ "text": prompt }] }] });
            let method = match options.is_streamed {
                true => "streamGenerateContent?alt=sse",
                false => "generateContent",
            };
            path = format!("/v1beta/models/{MODEL}:{method}");
        }
        Dialect::Ollama => path = "/api/chat".to_owned(),
        _ if options.asks_for_usage => body["stream_options"] = json!({ "include_usage": true }),
        _ => {}
    }
    send(gateway, &path, &body, options)
}

/// Posts a body and reads as much of the response as the options say.
pub(super) fn send(
    gateway: &Gateway,
    path: &str,
    body: &Value,
    options: Options,
) -> (u16, Vec<u8>) {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    // A separate agent, so that dropping it closes the connection.
    let agent: ureq::Agent = config.timeout_global(Some(Duration::from_secs(30))).build().into();
    let request = agent.post(format!("{}{path}", gateway.base_url()));
    let request = request
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {KEY}"))
        .header("x-api-key", KEY)
        .header("x-goog-api-key", KEY)
        .header("anthropic-version", "2023-06-01")
        .header("x-tidegate-tenant", "team-a");
    let request = match options.coding {
        Some(coding) => request.header(CONTENT_CODING, coding),
        None => request,
    };
    let mut reply = request.send(body.to_string()).unwrap();
    let status = reply.status().as_u16();
    let mut read = Vec::new();
    let limit = options.leaves_after.unwrap_or(usize::MAX);
    // A broken response is read as far as possible.
    let _ = reply.body_mut().as_reader().take(limit as u64).read_to_end(&mut read);
    (status, read)
}
