//! The dialects that look like OpenAI's: one implementation, and a description for each of them.
//!
//! A description has the paths, the headers and the errors; requests, answers and streams are the
//! same. One choice is answered; a request for more is refused.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Failure, Fields, Finish, Refused, Reply, Scene, Voice};
use crate::server::ask::{Ask, Endpoint, Head};
use crate::text;

/// What differs between dialects that look like OpenAI's.
pub(crate) struct Compatible {
    /// What paths begin with.
    pub(crate) prefixes: &'static [&'static str],
    pub(crate) embeddings: bool,
    /// Members of OpenAI's requests that are refused.
    pub(crate) forbidden: &'static [&'static str],
    pub(crate) announce: fn(&Scene<'_>, &mut Fields),
    pub(crate) refuse: fn(&Failure, &Scene<'_>) -> Refused,
    /// The event that ends a failing stream.
    pub(crate) breaking: fn(&Reply) -> Value,
    pub(crate) stream_usage: StreamUsage,
    pub(crate) keep_alive: Option<(&'static str, &'static str)>,
}

/// When a stream tells what it used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamUsage {
    /// In one more chunk, if `stream_options.include_usage` asks for it.
    OnRequest,
    /// In the last chunk, unasked.
    InLastChunk,
}

impl Voice for Compatible {
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

    fn ask(&self, _head: &Head, endpoint: Endpoint, body: &Value) -> Result<Ask, Failure> {
        if self.forbidden.iter().any(|name| body.get(name).is_some()) {
            return Err(Failure::BadRequest("the body has members that are not permitted"));
        }
        read(endpoint, body)
    }

    fn announce(&self, scene: &Scene<'_>, fields: &mut Fields) {
        (self.announce)(scene, fields);
    }

    fn refuse(&self, failure: &Failure, scene: &Scene<'_>) -> Refused {
        (self.refuse)(failure, scene)
    }

    fn whole(&self, reply: &Reply) -> Value {
        match reply.endpoint {
            Endpoint::Embeddings => embeddings(reply),
            Endpoint::Chat | Endpoint::ChatStream => completion(reply),
        }
    }

    fn stream_type(&self, _ask: &Ask) -> &'static str {
        "text/event-stream"
    }

    fn opening(&self, reply: &Reply) -> String {
        self.event(reply, &json!({ "role": "assistant", "content": "" }), None)
    }

    fn token(&self, reply: &Reply, _index: u64, word: &str) -> String {
        self.event(reply, &json!({ "content": word }), None)
    }

    fn closing(&self, reply: &Reply) -> String {
        let mut text = self.event(reply, &json!({}), Some(finish(reply)));
        if self.stream_usage == StreamUsage::OnRequest && reply.include_usage {
            let mut last = chunk(reply);
            last["choices"] = json!([]);
            last["usage"] = usage(reply);
            let _ = write!(text, "data: {last}\n\n");
        }
        text.push_str("data: [DONE]\n\n");
        text
    }

    fn breaking(&self, reply: &Reply) -> String {
        format!("data: {}\n\n", (self.breaking)(reply))
    }

    fn keep_alive(&self, streams: bool) -> Option<&'static str> {
        self.keep_alive.map(|(events, blank)| if streams { events } else { blank })
    }
}

impl Compatible {
    fn event(&self, reply: &Reply, delta: &Value, finish: Option<&str>) -> String {
        let mut event = chunk(reply);
        event["choices"] =
            json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }]);
        match self.stream_usage {
            StreamUsage::OnRequest if reply.include_usage => event["usage"] = Value::Null,
            StreamUsage::InLastChunk if finish.is_some() => event["usage"] = usage(reply),
            StreamUsage::OnRequest | StreamUsage::InLastChunk => {}
        }
        format!("data: {event}\n\n")
    }
}

/// Reads a request of any of these dialects.
pub(crate) fn read(endpoint: Endpoint, body: &Value) -> Result<Ask, Failure> {
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
    Ok(Ask {
        endpoint,
        model: model.to_owned(),
        streams: endpoint == Endpoint::Chat && body["stream"].as_bool().unwrap_or(false),
        sse: true,
        include_usage: body["stream_options"]["include_usage"].as_bool().unwrap_or(false),
        max_output,
        attempts: body["best_of"].as_u64().unwrap_or(1).max(1),
        characters: text::characters(texts) + text::written(&body["tools"]),
        inputs: texts.as_array().map_or(1, Vec::len),
    })
}

/// An error object as OpenAI has it.
pub(crate) fn error(message: &str, kind: &str, code: Option<&str>) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

fn chunk(reply: &Reply) -> Value {
    json!({
        "id": format!("chatcmpl-sim-{}", reply.number),
        "object": "chat.completion.chunk",
        "created": reply.created,
        "model": reply.model,
    })
}

fn completion(reply: &Reply) -> Value {
    json!({
        "id": format!("chatcmpl-sim-{}", reply.number),
        "object": "chat.completion",
        "created": reply.created,
        "model": reply.model,
        "choices": [{
            "index": 0,
            "message": { "role": "assistant", "content": text::sentence(reply.output) },
            "logprobs": null,
            "finish_reason": finish(reply),
        }],
        "usage": usage(reply),
    })
}

fn embeddings(reply: &Reply) -> Value {
    let vector =
        |index| json!({ "object": "embedding", "index": index, "embedding": [0.25, -0.5] });
    json!({
        "object": "list",
        "data": (0..reply.inputs).map(vector).collect::<Vec<_>>(),
        "model": reply.model,
        "usage": { "prompt_tokens": reply.input, "total_tokens": reply.input },
    })
}

fn usage(reply: &Reply) -> Value {
    json!({
        "prompt_tokens": reply.input,
        "completion_tokens": reply.output,
        "total_tokens": reply.input + reply.output,
        "prompt_tokens_details": { "cached_tokens": reply.cached },
        "completion_tokens_details": { "reasoning_tokens": 0 },
    })
}

fn finish(reply: &Reply) -> &'static str {
    match reply.finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}
