//! OpenRouter: limits only on errors, numeric codes, and stream errors in a separate chunk.

use http::StatusCode;
use serde_json::{Value, json};

use super::compatible::{Compatible, StreamUsage};
use super::{ErrorResponse, Failure, ResponseContent, ResponseContext, ResponseHeaders};
use crate::calendar::{SECOND, whole_seconds};
use crate::limits::quota::{Dimension, LimitStatus};
use crate::reporting::Reporting;

pub(super) static OPENROUTER: Compatible = Compatible {
    prefixes: &["/api/v1"],
    embeddings: false,
    forbidden: &[],
    limit_headers: |_, _| {},
    error_response,
    stream_error,
    stream_usage: StreamUsage::OnRequest,
    keep_alive: None,
};

fn stream_error(content: &ResponseContent) -> Value {
    json!({
        "id": format!("gen-sim-{}", content.number),
        "object": "chat.completion.chunk",
        "created": content.created,
        "model": content.model,
        "error": { "code": 502, "message": "The provider disconnected." },
        "choices": [{ "index": 0, "delta": { "content": "" }, "finish_reason": "error" }],
    })
}

fn error_response(failure: &Failure, context: &ResponseContext<'_>) -> ErrorResponse {
    let limits = limits(failure, context);
    let (status, message) = match failure {
        Failure::Limited(blocked) if blocked.dimension == Dimension::Day => {
            (StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded: requests-per-day")
        }
        Failure::DayQuota { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded: requests-per-day")
        }
        Failure::Limited(_) | Failure::Busy { .. } | Failure::Throttled { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded: requests-per-min")
        }
        Failure::OutOfCredit => (StatusCode::PAYMENT_REQUIRED, "There is no credit left."),
        Failure::ServerError => {
            (StatusCode::INTERNAL_SERVER_ERROR, "The server had an error while it answered.")
        }
        Failure::Unavailable | Failure::Overloaded => {
            (StatusCode::SERVICE_UNAVAILABLE, "No provider is available.")
        }
        Failure::BadKey => (StatusCode::UNAUTHORIZED, "There is no such key."),
        Failure::NoModel(_) => (StatusCode::BAD_REQUEST, "There is no such model."),
        Failure::NoPath => (StatusCode::NOT_FOUND, "There is nothing at this URL."),
        Failure::BadRequest(why) => (StatusCode::BAD_REQUEST, *why),
    };
    let mut metadata = json!({ "provider_name": "sim" });
    if status == StatusCode::TOO_MANY_REQUESTS {
        metadata["provider_code"] = json!(429);
    }
    let mut headers = ResponseHeaders::default();
    if let Some(limit_status) = limits {
        let reset = context.now.millisecond_after(limit_status.reset).to_string();
        headers.set("x-ratelimit-limit", limit_status.limit);
        headers.set("x-ratelimit-remaining", limit_status.remaining);
        headers.set("x-ratelimit-reset", &reset);
        metadata["headers"] = json!({
            "X-RateLimit-Limit": limit_status.limit.to_string(),
            "X-RateLimit-Remaining": limit_status.remaining.to_string(),
            "X-RateLimit-Reset": reset,
        });
    }
    if let Some(wait) = context.wait(failure) {
        headers.set("retry-after", whole_seconds(wait));
    }
    let body = json!({
        "error": { "code": status.as_u16(), "message": message, "metadata": metadata },
    });
    ErrorResponse { status, headers, body }
}

/// Returns the limit to report with an error; its reset is when the next call would be admitted.
fn limits(failure: &Failure, context: &ResponseContext<'_>) -> Option<LimitStatus> {
    let wait = context.wait(failure)?;
    let (limit_status, is_of_a_day) = match failure {
        Failure::Limited(blocked) => {
            (context.snapshot.of(blocked.dimension)?, blocked.dimension == Dimension::Day)
        }
        Failure::DayQuota { limit, .. } => (
            context.reporting.limit_status(LimitStatus {
                limit: *limit,
                remaining: 0,
                reset: wait,
            }),
            true,
        ),
        _ => (
            context
                .reporting
                .limit_status(LimitStatus { remaining: 0, ..context.snapshot.requests? }),
            false,
        ),
    };
    let reset = match context.reporting {
        Reporting::PerSecond if !is_of_a_day => SECOND,
        _ => wait,
    };
    Some(LimitStatus { reset, ..limit_status })
}
