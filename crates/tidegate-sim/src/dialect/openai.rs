//! OpenAI: limits in `x-ratelimit-*` on every answer, waits in headers and in the text of errors.
//!
//! Groq's errors are made of the same parts, which are kept here.

use http::StatusCode;
use serde_json::Value;

use super::compatible::{Compatible, StreamUsage, error};
use super::{Failure, Fields, Refused, Scene};
use crate::calendar::{go_duration, whole_millis, whole_seconds};
use crate::limits::quota::{Blocked, Dimension, Gauge, Wait};

pub(super) static OPENAI: Compatible = Compatible {
    prefixes: &["/v1"],
    embeddings: true,
    forbidden: &[],
    announce,
    refuse,
    breaking: |_| server_error(),
    stream_usage: StreamUsage::OnRequest,
    keep_alive: None,
};

/// Where a limit is told, and in which words.
pub(super) struct Wording {
    pub(super) whose: fn(&str) -> String,
    pub(super) sends_millis: bool,
}

fn announce(scene: &Scene<'_>, fields: &mut Fields) {
    fields.set("x-request-id", format_args!("req_sim_{}", scene.number));
    // Both limits of requests go by one name; an account with so few a day is told of those.
    let requests = scene.standing.refilling_day.or(scene.standing.requests);
    gauges(requests, scene.standing.tokens, fields, go_duration);
}

/// The six headers, of whichever limits stand behind the two names.
pub(super) fn gauges(
    requests: Option<Gauge>,
    tokens: Option<Gauge>,
    fields: &mut Fields,
    reset: fn(u64) -> String,
) {
    if let Some(gauge) = requests {
        fields.set("x-ratelimit-limit-requests", gauge.limit);
        fields.set("x-ratelimit-remaining-requests", gauge.remaining);
        fields.set("x-ratelimit-reset-requests", reset(gauge.reset));
    }
    if let Some(gauge) = tokens {
        fields.set("x-ratelimit-limit-tokens", gauge.limit);
        fields.set("x-ratelimit-remaining-tokens", gauge.remaining);
        fields.set("x-ratelimit-reset-tokens", reset(gauge.reset));
    }
}

fn refuse(failure: &Failure, scene: &Scene<'_>) -> Refused {
    let wording =
        Wording { whose: |model| format!("{model} in organization org-sim"), sends_millis: true };
    let mut refused = refuse_in(&wording, failure, scene);
    announce(scene, &mut refused.fields);
    refused
}

/// A refusal in OpenAI's words, without the headers that tell of limits.
pub(super) fn refuse_in(wording: &Wording, failure: &Failure, scene: &Scene<'_>) -> Refused {
    let whose = (wording.whose)(scene.model);
    let limited = |kind: &str, message: &str| {
        let body = error(message, kind, Some("rate_limit_exceeded"));
        let mut refused = Refused::new(StatusCode::TOO_MANY_REQUESTS, body);
        if let Some(wait) = scene.wait(failure) {
            retry_after(&mut refused.fields, wait, wording.sends_millis);
        }
        refused
    };
    match failure {
        Failure::Limited(blocked) => {
            limited(kind(blocked.dimension), &sentence(&whose, blocked, scene))
        }
        Failure::Busy { limit } => {
            let numbers = scene.numbers(format_args!(": Limit {limit}"));
            limited("requests", &format!("Too many calls at once for {whose}{numbers}."))
        }
        Failure::Throttled { .. } => {
            let wait = scene.wait(failure).map(go_duration);
            let again = wait.map(|wait| format!(" Please try again in {wait}."));
            let again = again.unwrap_or_default();
            limited("requests", &format!("Rate limit reached for {whose}.{again}"))
        }
        Failure::DayQuota { limit, left } => {
            let wait = go_duration(*left);
            let numbers = scene.numbers(format_args!(
                ": Limit {limit}, Used {limit}, Requested 1. Please try again in {wait}"
            ));
            let of = "requests per day (RPD)";
            limited("requests", &format!("Rate limit reached for {whose} on {of}{numbers}."))
        }
        other => plain(other),
    }
}

/// The failures that have nothing to do with rates.
pub(super) fn plain(failure: &Failure) -> Refused {
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
    Refused::new(status, body)
}

pub(super) fn retry_after(fields: &mut Fields, wait: u64, sends_millis: bool) {
    fields.set("retry-after", whole_seconds(wait));
    if sends_millis {
        fields.set("retry-after-ms", whole_millis(wait));
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

fn sentence(whose: &str, blocked: &Blocked, scene: &Scene<'_>) -> String {
    let Blocked { gauge, requested, .. } = blocked;
    let of = match blocked.dimension {
        Dimension::Tokens | Dimension::InputTokens | Dimension::OutputTokens => {
            "tokens per min (TPM)"
        }
        Dimension::Day => "requests per day (RPD)",
        Dimension::Requests | Dimension::Slice | Dimension::Acceleration => {
            "requests per min (RPM)"
        }
    };
    let limit = gauge.limit;
    match blocked.wait {
        Wait::Never => {
            let numbers = scene.numbers(format_args!(": Limit {limit}, Requested {requested}"));
            format!(
                "Request too large for {whose} on {of}{numbers}. Send less, or allow less output."
            )
        }
        Wait::Now | Wait::For(_) => {
            let used = limit.saturating_sub(gauge.remaining);
            let wait = go_duration(match blocked.wait {
                Wait::For(nanos) => nanos,
                Wait::Now | Wait::Never => 0,
            });
            let numbers = scene.numbers(format_args!(
                ": Limit {limit}, Used {used}, Requested {requested}. Please try again in {wait}"
            ));
            format!("Rate limit reached for {whose} on {of}{numbers}.")
        }
    }
}
