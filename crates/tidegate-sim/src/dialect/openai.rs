//! OpenAI: limits in `x-ratelimit-*` on every response, waits in headers and error messages.
//!
//! Groq's errors use the functions of this module.

use http::StatusCode;
use serde_json::Value;

use super::compatible::{Compatible, StreamUsage, error};
use super::{ErrorResponse, Failure, ResponseContext, ResponseHeaders};
use crate::calendar::{go_duration, whole_millis, whole_seconds};
use crate::limits::quota::{Blocked, Dimension, LimitStatus, Wait};

pub(super) static OPENAI: Compatible = Compatible {
    prefixes: &["/v1"],
    embeddings: true,
    forbidden: &[],
    limit_headers,
    error_response,
    stream_error: |_| server_error(),
    stream_usage: StreamUsage::OnRequest,
    keep_alive: None,
};

/// Differences in the wording of errors.
pub(super) struct Wording {
    pub(super) subject: fn(&str) -> String,
    pub(super) sends_millis: bool,
}

fn limit_headers(context: &ResponseContext<'_>, headers: &mut ResponseHeaders) {
    headers.set("x-request-id", format_args!("req_sim_{}", context.number));
    // Both limits of requests use the same headers; a refilling day takes precedence.
    let requests = context.snapshot.refilling_day.or(context.snapshot.requests);
    set_limit_headers(requests, context.snapshot.tokens, headers, go_duration);
}

/// Sets the six headers for two limits.
pub(super) fn set_limit_headers(
    requests: Option<LimitStatus>,
    tokens: Option<LimitStatus>,
    headers: &mut ResponseHeaders,
    reset: fn(u64) -> String,
) {
    if let Some(limit_status) = requests {
        headers.set("x-ratelimit-limit-requests", limit_status.limit);
        headers.set("x-ratelimit-remaining-requests", limit_status.remaining);
        headers.set("x-ratelimit-reset-requests", reset(limit_status.reset));
    }
    if let Some(limit_status) = tokens {
        headers.set("x-ratelimit-limit-tokens", limit_status.limit);
        headers.set("x-ratelimit-remaining-tokens", limit_status.remaining);
        headers.set("x-ratelimit-reset-tokens", reset(limit_status.reset));
    }
}

fn error_response(failure: &Failure, context: &ResponseContext<'_>) -> ErrorResponse {
    let wording =
        Wording { subject: |model| format!("{model} in organization org-sim"), sends_millis: true };
    let mut response = openai_error(&wording, failure, context);
    limit_headers(context, &mut response.headers);
    response
}

/// Builds an error in OpenAI's format, without the headers about limits.
pub(super) fn openai_error(
    wording: &Wording,
    failure: &Failure,
    context: &ResponseContext<'_>,
) -> ErrorResponse {
    let subject = (wording.subject)(context.model);
    let limited = |kind: &str, message: &str| {
        let body = error(message, kind, Some("rate_limit_exceeded"));
        let mut response = ErrorResponse::new(StatusCode::TOO_MANY_REQUESTS, body);
        if let Some(wait) = context.wait(failure) {
            retry_after(&mut response.headers, wait, wording.sends_millis);
        }
        response
    };
    match failure {
        Failure::Limited(blocked) => {
            limited(kind(blocked.dimension), &sentence(&subject, blocked, context))
        }
        Failure::Busy { limit } => {
            let numbers = context.unless_hidden(format_args!(": Limit {limit}"));
            limited("requests", &format!("Too many calls at once for {subject}{numbers}."))
        }
        Failure::Throttled { .. } => {
            let wait = context.wait(failure).map(go_duration);
            let again = wait.map(|wait| format!(" Please try again in {wait}."));
            let again = again.unwrap_or_default();
            limited("requests", &format!("Rate limit reached for {subject}.{again}"))
        }
        Failure::DayQuota { limit, left } => {
            let wait = go_duration(*left);
            let numbers = context.unless_hidden(format_args!(
                ": Limit {limit}, Used {limit}, Requested 1. Please try again in {wait}"
            ));
            let of = "requests per day (RPD)";
            limited("requests", &format!("Rate limit reached for {subject} on {of}{numbers}."))
        }
        other => generic_error(other),
    }
}

/// Builds an error for failures other than rate limits.
pub(super) fn generic_error(failure: &Failure) -> ErrorResponse {
    let quota = "You have used up your quota; check your plan and billing details.";
    let (status, body) = match failure {
        Failure::OutOfCredit => (
            StatusCode::TOO_MANY_REQUESTS,
            error(quota, "insufficient_quota", Some("insufficient_quota")),
        ),
        Failure::Unavailable | Failure::Overloaded => (
            StatusCode::SERVICE_UNAVAILABLE,
            error("The model is overloaded; try again later.", "server_error", None),
        ),
        Failure::BadKey => (
            StatusCode::UNAUTHORIZED,
            error("The API key is not valid.", "invalid_request_error", Some("invalid_api_key")),
        ),
        Failure::NoModel(model) => (
            StatusCode::NOT_FOUND,
            error(
                &format!("The model `{model}` does not exist."),
                "invalid_request_error",
                Some("model_not_found"),
            ),
        ),
        Failure::NoPath => (
            StatusCode::NOT_FOUND,
            error("There is nothing at this URL.", "invalid_request_error", None),
        ),
        Failure::BadRequest(why) => {
            (StatusCode::BAD_REQUEST, error(why, "invalid_request_error", None))
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, server_error()),
    };
    ErrorResponse::new(status, body)
}

pub(super) fn retry_after(headers: &mut ResponseHeaders, wait: u64, sends_millis: bool) {
    headers.set("retry-after", whole_seconds(wait));
    if sends_millis {
        headers.set("retry-after-ms", whole_millis(wait));
    }
}

pub(super) fn server_error() -> Value {
    error("The server had an error while it answered.", "server_error", None)
}

fn kind(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Tokens | Dimension::InputTokens | Dimension::OutputTokens => "tokens",
        Dimension::Requests | Dimension::Slice | Dimension::Day | Dimension::Acceleration => {
            "requests"
        }
    }
}

fn sentence(subject: &str, blocked: &Blocked, context: &ResponseContext<'_>) -> String {
    let Blocked { limit_status, requested, .. } = blocked;
    let of = match blocked.dimension {
        Dimension::Tokens | Dimension::InputTokens | Dimension::OutputTokens => {
            "tokens per min (TPM)"
        }
        Dimension::Day => "requests per day (RPD)",
        Dimension::Requests | Dimension::Slice | Dimension::Acceleration => {
            "requests per min (RPM)"
        }
    };
    let limit = limit_status.limit;
    match blocked.wait {
        Wait::Never => {
            let numbers =
                context.unless_hidden(format_args!(": Limit {limit}, Requested {requested}"));
            format!(
                "Request too large for {subject} on {of}{numbers}. Send less, or allow less output."
            )
        }
        Wait::Now | Wait::For(_) => {
            let used = limit.saturating_sub(limit_status.remaining);
            let wait = go_duration(match blocked.wait {
                Wait::For(nanos) => nanos,
                Wait::Now | Wait::Never => 0,
            });
            let numbers = context.unless_hidden(format_args!(
                ": Limit {limit}, Used {used}, Requested {requested}. Please try again in {wait}"
            ));
            format!("Rate limit reached for {subject} on {of}{numbers}.")
        }
    }
}
