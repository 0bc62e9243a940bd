//! Mistral: limits per minute without resets, the cost of a query, and flat error bodies.

use http::StatusCode;
use serde_json::{Value, json};

use super::compatible::{Compatible, StreamUsage};
use super::{ErrorResponse, Failure, ResponseContext, ResponseHeaders};
use crate::calendar::whole_seconds;

pub(super) static MISTRAL: Compatible = Compatible {
    prefixes: &["/v1"],
    embeddings: true,
    forbidden: &["max_completion_tokens", "stream_options"],
    limit_headers,
    error_response,
    stream_error: |_| {
        error(500, "The server failed while it answered.", "internal_server_error", "1000")
    },
    stream_usage: StreamUsage::InLastChunk,
    keep_alive: None,
};

fn limit_headers(context: &ResponseContext<'_>, headers: &mut ResponseHeaders) {
    if !context.hides_limits() {
        headers.set("x-ratelimit-tokens-query-cost", context.charge.total());
    }
    limits(context, headers);
}

fn limits(context: &ResponseContext<'_>, headers: &mut ResponseHeaders) {
    if let Some(limit_status) = context.snapshot.tokens {
        headers.set("x-ratelimit-limit-tokens-minute", limit_status.limit);
        headers.set("x-ratelimit-remaining-tokens-minute", limit_status.remaining);
    }
    if let Some(limit_status) = context.snapshot.requests {
        headers.set("x-ratelimit-limit-req-minute", limit_status.limit);
        headers.set("x-ratelimit-remaining-req-minute", limit_status.remaining);
    }
}

fn error_response(failure: &Failure, context: &ResponseContext<'_>) -> ErrorResponse {
    let (status, message, kind, code) = match failure {
        Failure::Limited(_)
        | Failure::Busy { .. }
        | Failure::Throttled { .. }
        | Failure::DayQuota { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded", "rate_limited", "1300")
        }
        Failure::Unavailable | Failure::Overloaded => {
            (StatusCode::SERVICE_UNAVAILABLE, "The service is unavailable.", "unavailable", "1001")
        }
        Failure::BadKey => {
            (StatusCode::UNAUTHORIZED, "The key is not valid.", "invalid_request_error", "1401")
        }
        Failure::NoModel(_) => {
            (StatusCode::BAD_REQUEST, "There is no such model.", "invalid_model", "1500")
        }
        Failure::NoPath => {
            (StatusCode::NOT_FOUND, "There is no such route.", "invalid_request_error", "1404")
        }
        Failure::BadRequest(why) => {
            (StatusCode::BAD_REQUEST, *why, "invalid_request_error", "1400")
        }
        Failure::OutOfCredit | Failure::ServerError => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "The server failed while it answered.",
            "internal_server_error",
            "1000",
        ),
    };
    let mut response = ErrorResponse::new(status, error(status.as_u16(), message, kind, code));
    limits(context, &mut response.headers);
    if let Some(wait) = context.wait(failure) {
        response.headers.set("retry-after", whole_seconds(wait));
    }
    response
}

fn error(status: u16, message: &str, kind: &str, code: &str) -> Value {
    json!({
        "object": "error",
        "message": message,
        "type": kind,
        "param": null,
        "code": code,
        "raw_status_code": status,
    })
}
