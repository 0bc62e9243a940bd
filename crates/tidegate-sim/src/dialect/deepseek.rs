//! DeepSeek: only a concurrency limit, no headers about it, and a queue with keep-alives as blank
//! lines or comments.

use http::StatusCode;

use super::compatible::{Compatible, StreamUsage, error};
use super::openai::{generic_error, server_error};
use super::{ErrorResponse, Failure, ResponseContext};

pub(super) static DEEPSEEK: Compatible = Compatible {
    prefixes: &["/v1", ""],
    embeddings: false,
    forbidden: &[],
    limit_headers: |_, _| {},
    error_response,
    stream_error: |_| server_error(),
    stream_usage: StreamUsage::OnRequest,
    keep_alive: Some((": keep-alive\n\n", "\n")),
};

fn error_response(failure: &Failure, _scene: &ResponseContext<'_>) -> ErrorResponse {
    match failure {
        Failure::Limited(_) | Failure::Busy { .. } | Failure::Throttled { .. } => {
            ErrorResponse::new(
                StatusCode::TOO_MANY_REQUESTS,
                error("You are sending requests too fast.", "rate_limit_reached", None),
            )
        }
        Failure::OutOfCredit => ErrorResponse::new(
            StatusCode::PAYMENT_REQUIRED,
            error("Insufficient Balance", "unknown_error", Some("invalid_request_error")),
        ),
        other => generic_error(other),
    }
}
