//! Anthropic: limits with dates, a required version header, named events, and usage reported twice
//! in a stream.

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Codec, ErrorResponse, Failure, Finish, ResponseContent, ResponseContext, ResponseHeaders,
};
use crate::calendar::{rfc3339, whole_seconds};
use crate::limits::quota::{Blocked, Dimension, LimitStatus, Wait};
use crate::server::request::{Endpoint, Head, RequestSummary};
use crate::text;

pub(super) struct Anthropic;

impl Codec for Anthropic {
    fn route(&self, path: &str) -> Option<(Endpoint, Option<String>)> {
        (path == "/v1/messages").then_some((Endpoint::Chat, None))
    }

    fn credential<'a>(&self, head: &'a Head) -> Option<&'a str> {
        head.header("x-api-key").or_else(|| head.bearer())
    }

    fn parse_request(
        &self,
        head: &Head,
        endpoint: Endpoint,
        body: &Value,
    ) -> Result<RequestSummary, Failure> {
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
        Ok(RequestSummary {
            endpoint,
            model: model.to_owned(),
            streams: body["stream"].as_bool().unwrap_or(false),
            sse: true,
            include_usage: true,
            max_output: Some(max_output),
            attempts: 1,
            characters: text::characters(&body["system"])
                + text::characters(&body["messages"])
                + text::json_characters(&body["tools"]),
            inputs: 1,
        })
    }

    fn limit_headers(&self, context: &ResponseContext<'_>, headers: &mut ResponseHeaders) {
        limit_headers(context, headers);
    }

    fn error_response(&self, failure: &Failure, context: &ResponseContext<'_>) -> ErrorResponse {
        let (status, error) = describe(failure, context);
        let body = json!({ "type": "error", "error": error, "request_id": request_id(context) });
        let mut response = ErrorResponse::new(status, body);
        limit_headers(context, &mut response.headers);
        if let (StatusCode::TOO_MANY_REQUESTS, Some(wait)) = (status, context.wait(failure)) {
            response.headers.set("retry-after", whole_seconds(wait));
        }
        response
    }

    fn response_body(&self, content: &ResponseContent) -> Value {
        let mut message = message(content, content.output);
        message["content"] = json!([{ "type": "text", "text": text::sentence(content.output) }]);
        message["stop_reason"] = json!(stop_reason(content));
        message
    }

    fn stream_content_type(&self, _ask: &RequestSummary) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    fn stream_start(&self, content: &ResponseContent) -> String {
        let start = event(&json!({ "type": "message_start", "message": message(content, 1) }));
        let block = event(&json!({
            "type": "content_block_start",
            "index": 0,
            "content_block": { "type": "text", "text": "" },
        }));
        format!("{start}{block}{}", event(&json!({ "type": "ping" })))
    }

    fn stream_token(&self, _reply: &ResponseContent, _index: u64, word: &str) -> String {
        event(&json!({
            "type": "content_block_delta",
            "index": 0,
            "delta": { "type": "text_delta", "text": word },
        }))
    }

    fn stream_end(&self, content: &ResponseContent) -> String {
        let stop = event(&json!({ "type": "content_block_stop", "index": 0 }));
        let delta = event(&json!({
            "type": "message_delta",
            "delta": { "stop_reason": stop_reason(content), "stop_sequence": null },
            "usage": { "output_tokens": content.output },
        }));
        format!("{stop}{delta}{}", event(&json!({ "type": "message_stop" })))
    }

    fn stream_error(&self, _reply: &ResponseContent) -> String {
        let error = json!({ "type": "overloaded_error", "message": "Overloaded" });
        event(&json!({ "type": "error", "error": error }))
    }
}

fn limit_headers(context: &ResponseContext<'_>, headers: &mut ResponseHeaders) {
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
    let snapshot = &context.snapshot;
    let limit_statuses = [snapshot.requests, snapshot.tokens, snapshot.input, snapshot.output];
    for ([limit, remaining, reset], limit_status) in NAMES.into_iter().zip(limit_statuses) {
        if let Some(limit_status) = limit_status {
            let LimitStatus { limit: all, remaining: left, reset: nanos } = limit_status;
            headers.set(limit, all);
            headers.set(remaining, left);
            headers.set(reset, rfc3339(context.now.second_after(nanos)));
        }
    }
    headers.set("request-id", request_id(context));
}

fn describe(failure: &Failure, context: &ResponseContext<'_>) -> (StatusCode, Value) {
    let error = |kind: &str, message: &str| json!({ "type": kind, "message": message });
    let limited =
        |message: &str| (StatusCode::TOO_MANY_REQUESTS, error("rate_limit_error", message));
    match failure {
        Failure::Limited(blocked) => limited(&sentence(blocked, context)),
        Failure::Busy { limit } => {
            let limit = context.unless_hidden(format_args!("{limit} "));
            limited(&format!("This request would exceed your limit of {limit}calls at once."))
        }
        Failure::Throttled { .. } => limited("This request would exceed your rate limit."),
        Failure::DayQuota { left, .. } => {
            let date = rfc3339(context.now.second_after(*left));
            let access = context.unless_hidden(format_args!(" You will regain access on {date}."));
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

fn sentence(blocked: &Blocked, context: &ResponseContext<'_>) -> String {
    if blocked.dimension == Dimension::Acceleration {
        return "Your use has grown too fast; raise it gradually.".to_owned();
    }
    let limit = context.unless_hidden(format_args!("{} ", blocked.limit_status.limit));
    let of = blocked.dimension;
    match blocked.wait {
        Wait::Never => format!("This request alone exceeds your limit of {limit}{of}."),
        Wait::Now | Wait::For(_) => {
            format!("This request would exceed your limit of {limit}{of}.")
        }
    }
}

fn message(content: &ResponseContent, output: u64) -> Value {
    json!({
        "id": format!("msg_sim_{}", content.number),
        "type": "message",
        "role": "assistant",
        "model": content.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {
            "input_tokens": content.input - content.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": content.cached,
            "output_tokens": output,
        },
    })
}

fn stop_reason(content: &ResponseContent) -> &'static str {
    match content.finish {
        Finish::Stop => "end_turn",
        Finish::Length => "max_tokens",
    }
}

fn request_id(context: &ResponseContext<'_>) -> String {
    format!("req_sim_{}", context.number)
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}
