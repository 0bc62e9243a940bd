//! Anthropic: limits with dates, a version that every request names, events with names, and usage
//! that a stream tells twice.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Failure, Fields, Finish, Refused, Reply, Scene, Voice};
use crate::calendar::{rfc3339, whole_seconds};
use crate::limits::quota::{Blocked, Dimension, Gauge, Wait};
use crate::server::ask::{Ask, Endpoint, Head};
use crate::text;

pub(super) struct Anthropic;

impl Voice for Anthropic {
    fn route(&self, path: &str) -> Option<(Endpoint, Option<String>)> {
        (path == "/v1/messages").then_some((Endpoint::Chat, None))
    }

    fn credential<'a>(&self, head: &'a Head) -> Option<&'a str> {
        head.header("x-api-key").or_else(|| head.bearer())
    }

    fn ask(&self, head: &Head, endpoint: Endpoint, body: &Value) -> Result<Ask, Failure> {
        if head.header("anthropic-version").is_none() {
            return Err(Failure::BadRequest("anthropic-version: header is required"));
        }
        let Some(model) = body["model"].as_str() else {
            return Err(Failure::BadRequest("model: field required"));
        };
        let Some(max_output) = body["max_tokens"].as_u64().filter(|tokens| *tokens > 0) else {
            return Err(Failure::BadRequest("max_tokens: a positive number is required"));
        };
        if body["messages"].as_array().is_none_or(Vec::is_empty) {
            return Err(Failure::BadRequest("messages: at least one message is required"));
        }
        Ok(Ask {
            endpoint,
            model: model.to_owned(),
            streams: body["stream"].as_bool().unwrap_or(false),
            sse: true,
            include_usage: true,
            max_output: Some(max_output),
            attempts: 1,
            characters: text::characters(&body["system"])
                + text::characters(&body["messages"])
                + text::written(&body["tools"]),
            inputs: 1,
        })
    }

    fn announce(&self, scene: &Scene<'_>, fields: &mut Fields) {
        announce(scene, fields);
    }

    fn refuse(&self, failure: &Failure, scene: &Scene<'_>) -> Refused {
        let (status, error) = describe(failure, scene);
        let body = json!({ "type": "error", "error": error, "request_id": request_id(scene) });
        let mut refused = Refused::new(status, body);
        announce(scene, &mut refused.fields);
        if let (StatusCode::TOO_MANY_REQUESTS, Some(wait)) = (status, scene.wait(failure)) {
            refused.fields.set("retry-after", whole_seconds(wait));
        }
        refused
    }

    fn whole(&self, reply: &Reply) -> Value {
        let mut message = message(reply, reply.output);
        message["content"] = json!([{ "type": "text", "text": text::sentence(reply.output) }]);
        message["stop_reason"] = json!(stop_reason(reply));
        message
    }

    fn stream_type(&self, _ask: &Ask) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    fn opening(&self, reply: &Reply) -> String {
        let start = event(&json!({ "type": "message_start", "message": message(reply, 1) }));
        let block = event(&json!({
            "type": "content_block_start",
            "index": 0,
            "content_block": { "type": "text", "text": "" },
        }));
        format!("{start}{block}{}", event(&json!({ "type": "ping" })))
    }

    fn token(&self, _reply: &Reply, _index: u64, word: &str) -> String {
        event(&json!({
            "type": "content_block_delta",
            "index": 0,
            "delta": { "type": "text_delta", "text": word },
        }))
    }

    fn closing(&self, reply: &Reply) -> String {
        let stop = event(&json!({ "type": "content_block_stop", "index": 0 }));
        let delta = event(&json!({
            "type": "message_delta",
            "delta": { "stop_reason": stop_reason(reply), "stop_sequence": null },
            "usage": { "output_tokens": reply.output },
        }));
        format!("{stop}{delta}{}", event(&json!({ "type": "message_stop" })))
    }

    fn breaking(&self, _reply: &Reply) -> String {
        let error = json!({ "type": "overloaded_error", "message": "Overloaded" });
        event(&json!({ "type": "error", "error": error }))
    }
}

fn announce(scene: &Scene<'_>, fields: &mut Fields) {
    const NAMES: [[&str; 3]; 4] = [
        [
            "anthropic-ratelimit-requests-limit",
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
        ],
        [
            "anthropic-ratelimit-tokens-limit",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
        ],
        [
            "anthropic-ratelimit-input-tokens-limit",
            "anthropic-ratelimit-input-tokens-remaining",
            "anthropic-ratelimit-input-tokens-reset",
        ],
        [
            "anthropic-ratelimit-output-tokens-limit",
            "anthropic-ratelimit-output-tokens-remaining",
            "anthropic-ratelimit-output-tokens-reset",
        ],
    ];
    let standing = &scene.standing;
    let gauges = [standing.requests, standing.tokens, standing.input, standing.output];
    for ([limit, remaining, reset], gauge) in NAMES.into_iter().zip(gauges) {
        if let Some(gauge) = gauge {
            let Gauge { limit: all, remaining: left, reset: nanos } = gauge;
            fields.set(limit, all);
            fields.set(remaining, left);
            fields.set(reset, rfc3339(scene.now.second_after(nanos)));
        }
    }
    fields.set("request-id", request_id(scene));
}

fn describe(failure: &Failure, scene: &Scene<'_>) -> (StatusCode, Value) {
    let error = |kind: &str, message: &str| json!({ "type": kind, "message": message });
    let limited =
        |message: &str| (StatusCode::TOO_MANY_REQUESTS, error("rate_limit_error", message));
    match failure {
        Failure::Limited(blocked) => limited(&sentence(blocked, scene)),
        Failure::Busy { limit } => {
            let limit = scene.numbers(format_args!("{limit} "));
            limited(&format!("This request would exceed your limit of {limit}calls at once."))
        }
        Failure::Throttled { .. } => limited("This request would exceed your rate limit."),
        Failure::DayQuota { left, .. } => {
            let date = rfc3339(scene.now.second_after(*left));
            let access = scene.numbers(format_args!(" You will regain access on {date}."));
            let message = format!("You have reached your specified API usage limits.{access}");
            (StatusCode::BAD_REQUEST, error("invalid_request_error", &message))
        }
        Failure::OutOfCredit => {
            let mut error =
                error("rate_limit_error", "The spend limit of your organization is reached.");
            error["details"] = json!({ "error_code": "enforced_spend_limit_reached" });
            (StatusCode::TOO_MANY_REQUESTS, error)
        }
        Failure::ServerError => {
            (StatusCode::INTERNAL_SERVER_ERROR, error("api_error", "Internal server error"))
        }
        Failure::Unavailable => {
            (StatusCode::SERVICE_UNAVAILABLE, error("api_error", "Service unavailable"))
        }
        Failure::Overloaded => {
            let overloaded = StatusCode::from_u16(529).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
            (overloaded, error("overloaded_error", "Overloaded"))
        }
        Failure::BadKey => {
            (StatusCode::UNAUTHORIZED, error("authentication_error", "invalid x-api-key"))
        }
        Failure::NoModel(model) => {
            (StatusCode::NOT_FOUND, error("not_found_error", &format!("model: {model}")))
        }
        Failure::NoPath => (StatusCode::NOT_FOUND, error("not_found_error", "Not Found")),
        Failure::BadRequest(why) => (StatusCode::BAD_REQUEST, error("invalid_request_error", why)),
    }
}

fn sentence(blocked: &Blocked, scene: &Scene<'_>) -> String {
    if blocked.dimension == Dimension::Acceleration {
        return "Your use has grown too fast; raise it gradually.".to_owned();
    }
    let limit = scene.numbers(format_args!("{} ", blocked.gauge.limit));
    let of = blocked.dimension;
    match blocked.wait {
        Wait::Never => format!("This request alone exceeds your limit of {limit}{of}."),
        Wait::Now | Wait::For(_) => {
            format!("This request would exceed your limit of {limit}{of}.")
        }
    }
}

fn message(reply: &Reply, output: u64) -> Value {
    json!({
        "id": format!("msg_sim_{}", reply.number),
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {
            "input_tokens": reply.input - reply.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": reply.cached,
            "output_tokens": output,
        },
    })
}

fn stop_reason(reply: &Reply) -> &'static str {
    match reply.finish {
        Finish::Stop => "end_turn",
        Finish::Length => "max_tokens",
    }
}

fn request_id(scene: &Scene<'_>) -> String {
    format!("req_sim_{}", scene.number)
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}
