//! OpenAI-like dialects: one implementation, and a description of each dialect.
//!
//! Descriptions contain paths, headers and errors; requests, responses and streams are identical.
//! Requests for more than one choice are rejected.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{
    Codec, ErrorResponse, Failure, Finish, ResponseContent, ResponseContext, ResponseHeaders,
};
use crate::server::request::{Endpoint, Head, RequestSummary};
use crate::text;

/// What differs between OpenAI-like dialects.
pub(crate) struct Compatible {
    /// Path prefixes.
    pub(crate) prefixes: &'static [&'static str],
    pub(crate) embeddings: bool,
    /// Members of OpenAI's requests that are rejected.
    pub(crate) forbidden: &'static [&'static str],
    pub(crate) limit_headers: fn(&ResponseContext<'_>, &mut ResponseHeaders),
    pub(crate) error_response: fn(&Failure, &ResponseContext<'_>) -> ErrorResponse,
    /// Builds the error event of a failing stream.
    pub(crate) stream_error: fn(&ResponseContent) -> Value,
    pub(crate) stream_usage: StreamUsage,
    pub(crate) keep_alive: Option<(&'static str, &'static str)>,
}

/// When a stream reports usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamUsage {
    /// In an extra chunk, if `stream_options.include_usage` is set.
    OnRequest,
    /// Always in the last chunk.
    InLastChunk,
}

impl Codec for Compatible {
    fn route(&self, path: &str) -> Option<(Endpoint, Option<String>)> {
        let rest = self.prefixes.iter().find_map(|prefix| path.strip_prefix(prefix))?;
        match rest {
            "/chat/completions" => Some((Endpoint::Chat, None)),
            "/embeddings" if self.embeddings => Some((Endpoint::Embeddings, None)),
            _ => None,
        }
    }

    fn credential<'a>(&self, head: &'a Head) -> Option<&'a str> {
        head.bearer()
    }

    fn parse_request(
        &self,
        _head: &Head,
        endpoint: Endpoint,
        body: &Value,
    ) -> Result<RequestSummary, Failure> {
        if self.forbidden.iter().any(|name| body.get(name).is_some()) {
            return Err(Failure::BadRequest("the body has members that are not permitted"));
        }
        read(endpoint, body)
    }

    fn limit_headers(&self, context: &ResponseContext<'_>, headers: &mut ResponseHeaders) {
        (self.limit_headers)(context, headers);
    }

    fn error_response(&self, failure: &Failure, context: &ResponseContext<'_>) -> ErrorResponse {
        (self.error_response)(failure, context)
    }

    fn response_body(&self, content: &ResponseContent) -> Value {
        match content.endpoint {
            Endpoint::Embeddings => embeddings(content),
            Endpoint::Chat | Endpoint::ChatStream => completion(content),
        }
    }

    fn stream_content_type(&self, _ask: &RequestSummary) -> &'static str {
        "text/event-stream"
    }

    fn stream_start(&self, content: &ResponseContent) -> String {
        self.event(content, &json!({ "role": "assistant", "content": "" }), None)
    }

    fn stream_token(&self, content: &ResponseContent, _index: u64, word: &str) -> String {
        self.event(content, &json!({ "content": word }), None)
    }

    fn stream_end(&self, content: &ResponseContent) -> String {
        let mut text = self.event(content, &json!({}), Some(finish(content)));
        if self.stream_usage == StreamUsage::OnRequest && content.include_usage {
            let mut last = chunk(content);
            last["choices"] = json!([]);
            last["usage"] = usage(content);
            let _ = write!(text, "data: {last}\n\n");
        }
        text.push_str("data: [DONE]\n\n");
        text
    }

    fn stream_error(&self, content: &ResponseContent) -> String {
        format!("data: {}\n\n", (self.stream_error)(content))
    }

    fn keep_alive(&self, streams: bool) -> Option<&'static str> {
        self.keep_alive.map(|(events, blank)| if streams { events } else { blank })
    }
}

impl Compatible {
    fn event(&self, content: &ResponseContent, delta: &Value, finish: Option<&str>) -> String {
        let mut event = chunk(content);
        event["choices"] =
            json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }]);
        match self.stream_usage {
            StreamUsage::OnRequest if content.include_usage => event["usage"] = Value::Null,
            StreamUsage::InLastChunk if finish.is_some() => event["usage"] = usage(content),
            StreamUsage::OnRequest | StreamUsage::InLastChunk => {}
        }
        format!("data: {event}\n\n")
    }
}

/// Parses a request of any of these dialects.
pub(crate) fn read(endpoint: Endpoint, body: &Value) -> Result<RequestSummary, Failure> {
    let Some(model) = body["model"].as_str() else {
        return Err(Failure::BadRequest("you must provide a model parameter"));
    };
    let texts = match endpoint {
        Endpoint::Embeddings => &body["input"],
        Endpoint::Chat | Endpoint::ChatStream => &body["messages"],
    };
    if texts.is_null() || texts.as_array().is_some_and(Vec::is_empty) {
        return Err(Failure::BadRequest("there is nothing to answer"));
    }
    if body["n"].as_u64().is_some_and(|choices| choices != 1) {
        return Err(Failure::BadRequest("this simulator answers one choice"));
    }
    let max_output = ["max_completion_tokens", "max_tokens"]
        .iter()
        .map(|name| &body[*name])
        .find(|value| !value.is_null());
    let max_output = match max_output.map(Value::as_u64) {
        Some(None | Some(0)) => return Err(Failure::BadRequest("max_tokens is not positive")),
        Some(tokens) => tokens,
        None => None,
    };
    Ok(RequestSummary {
        endpoint,
        model: model.to_owned(),
        streams: endpoint == Endpoint::Chat && body["stream"].as_bool().unwrap_or(false),
        sse: true,
        include_usage: body["stream_options"]["include_usage"].as_bool().unwrap_or(false),
        max_output,
        attempts: body["best_of"].as_u64().unwrap_or(1).max(1),
        characters: text::characters(texts) + text::json_characters(&body["tools"]),
        inputs: texts.as_array().map_or(1, Vec::len),
    })
}

/// Builds an error object in OpenAI's format.
pub(crate) fn error(message: &str, kind: &str, code: Option<&str>) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

fn chunk(content: &ResponseContent) -> Value {
    json!({
        "id": format!("chatcmpl-sim-{}", content.number),
        "object": "chat.completion.chunk",
        "created": content.created,
        "model": content.model,
    })
}

fn completion(content: &ResponseContent) -> Value {
    json!({
        "id": format!("chatcmpl-sim-{}", content.number),
        "object": "chat.completion",
        "created": content.created,
        "model": content.model,
        "choices": [{
            "index": 0,
            "message": { "role": "assistant", "content": text::sentence(content.output) },
            "logprobs": null,
            "finish_reason": finish(content),
        }],
        "usage": usage(content),
    })
}

fn embeddings(content: &ResponseContent) -> Value {
    let vector =
        |index| json!({ "object": "embedding", "index": index, "embedding": [0.25, -0.5] });
    json!({
        "object": "list",
        "data": (0..content.inputs).map(vector).collect::<Vec<_>>(),
        "model": content.model,
        "usage": { "prompt_tokens": content.input, "total_tokens": content.input },
    })
}

fn usage(content: &ResponseContent) -> Value {
    json!({
        "prompt_tokens": content.input,
        "completion_tokens": content.output,
        "total_tokens": content.input + content.output,
        "prompt_tokens_details": { "cached_tokens": content.cached },
        "completion_tokens_details": { "reasoning_tokens": 0 },
    })
}

fn finish(content: &ResponseContent) -> &'static str {
    match content.finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}
