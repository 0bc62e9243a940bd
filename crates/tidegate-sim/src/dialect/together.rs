//! Together: limits enforced and reported per second, and rate limit errors of type `credit_limit`.

use http::StatusCode;

use super::compatible::{Compatible, StreamUsage, error};
use super::openai::{generic_error, server_error};
use super::{ErrorResponse, Failure, ResponseContext, ResponseHeaders};
use crate::calendar::whole_seconds;

pub(super) static TOGETHER: Compatible = Compatible {
    prefixes: &["/v1"],
    embeddings: true,
    forbidden: &[],
    limit_headers,
    error_response,
    stream_error: |_| server_error(),
    stream_usage: StreamUsage::OnRequest,
    keep_alive: None,
};

fn limit_headers(context: &ResponseContext<'_>, headers: &mut ResponseHeaders) {
    if let Some(limit_status) = context.snapshot.slice {
        headers.set("x-ratelimit-limit", limit_status.limit);
        headers.set("x-ratelimit-remaining", limit_status.remaining);
        headers.set("x-ratelimit-reset", whole_seconds(limit_status.reset));
    }
    if let Some(limit_status) = context.snapshot.second_tokens {
        headers.set("x-tokenlimit-limit", limit_status.limit);
        headers.set("x-tokenlimit-remaining", limit_status.remaining);
    }
}

fn error_response(failure: &Failure, context: &ResponseContext<'_>) -> ErrorResponse {
    let mut response = match failure {
        Failure::Limited(_)
        | Failure::Busy { .. }
        | Failure::Throttled { .. }
        | Failure::DayQuota { .. } => {
            let message =
                format!("You have reached the rate limit of the model {}.", context.model);
            let body = error(&message, "credit_limit", None);
            let mut response = ErrorResponse::new(StatusCode::TOO_MANY_REQUESTS, body);
            if let Some(wait) = context.wait(failure) {
                response.headers.set("retry-after", whole_seconds(wait));
            }
            response
        }
        other => generic_error(other),
    };
    limit_headers(context, &mut response.headers);
    response
}
