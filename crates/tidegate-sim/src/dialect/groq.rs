//! Groq: OpenAI's header names with other meanings. `-requests` headers are per day, `-tokens`
//! headers per minute, and `retry-after` is sent only with 429.

use http::StatusCode;

use super::compatible::{Compatible, StreamUsage, error};
use super::openai::{Wording, openai_error, server_error, set_limit_headers};
use super::{ErrorResponse, Failure, ResponseContext, ResponseHeaders};
use crate::calendar::go_duration;

pub(super) static GROQ: Compatible = Compatible {
    prefixes: &["/openai/v1"],
    embeddings: false,
    forbidden: &[],
    limit_headers,
    error_response,
    stream_error: |_| server_error(),
    stream_usage: StreamUsage::OnRequest,
    keep_alive: None,
};

fn limit_headers(context: &ResponseContext<'_>, headers: &mut ResponseHeaders) {
    headers.set("x-request-id", format_args!("req_sim_{}", context.number));
    set_limit_headers(context.snapshot.day, context.snapshot.tokens, headers, go_duration);
}

fn error_response(failure: &Failure, context: &ResponseContext<'_>) -> ErrorResponse {
    let wording = Wording {
        subject: |model| format!("model `{model}` in organization `org_sim`"),
        sends_millis: false,
    };
    let mut response = match failure {
        // Differs from a rate limit only in the message and the missing wait.
        Failure::OutOfCredit => ErrorResponse::new(
            StatusCode::TOO_MANY_REQUESTS,
            error(
                "The monthly quota of organization `org_sim` is used up.",
                "requests",
                Some("rate_limit_exceeded"),
            ),
        ),
        other => openai_error(&wording, other, context),
    };
    limit_headers(context, &mut response.headers);
    response
}
