//! Renders decisions as a status, JSON and headers. Durations are in milliseconds, rounded up.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use tidegate::{Decision, Denial, FailureRule, Grant, Outcome, Receipt, Settlement};
use tidegate_core::ceil_millis as millis;
use tidegate_http::field::RetryAfter;

use super::hints::RetryHints;
use super::request::List;
use crate::api::body::json;

/// A response, or the part of one that belongs to an operation of a batch.
pub(crate) struct ApiResponse<B> {
    pub(crate) status: StatusCode,
    pub(crate) body: B,
    retry: Option<RetryAfter>,
}

/// Status of a denial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DenyStatus {
    /// Status 429.
    #[default]
    TooManyRequests,
    /// Status 200, for clients that retry 429 by themselves.
    Ok,
}

/// What the response to an allowed request contains besides the state.
#[derive(Clone, Copy)]
pub(crate) enum ExtraFields {
    None,
    Receipt,
    WaitAndReceipt,
}

/// Response bodies of all verbs.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Body<'a> {
    Allowed(Allowed<'a>),
    Denied(Denied<'a>),
    Settled(Settled<'a>),
    Held {
        held_ms: u64,
    },
    Reset {
        reset: bool,
    },
    /// A kind of decision that this API does not know.
    Unknown {},
}

/// `degraded` is the failure rule that decided because the store was unavailable; also in
/// [`Denied`].
#[derive(Serialize)]
pub(crate) struct Allowed<'a> {
    allowed: bool,
    remaining: u64,
    reset_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    charges: Option<Vec<State<'a>>>,
}

#[derive(Serialize)]
pub(crate) struct Denied<'a> {
    allowed: bool,
    by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    by_index: Option<usize>,
    remaining: u64,
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    charges: Option<Vec<State<'a>>>,
}

#[derive(Serialize)]
pub(crate) struct Settled<'a> {
    remaining: u64,
    reset_after_ms: Option<u64>,
    saturated: bool,
    dropped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    charges: Option<Vec<State<'a>>>,
}

/// State of one charge of a list.
#[derive(Serialize)]
pub(crate) struct State<'a> {
    limit: &'a str,
    remaining: u64,
    reset_after_ms: Option<u64>,
}

impl<B> ApiResponse<B> {
    pub(crate) const fn ok(body: B) -> Self {
        Self { status: StatusCode::OK, body, retry: None }
    }

    /// Creates the response to a denial, with the wait if there is one.
    pub(crate) fn denied(body: B, retry: Option<RetryAfter>, deny: DenyStatus) -> Self {
        match deny {
            DenyStatus::TooManyRequests => {
                Self { status: StatusCode::TOO_MANY_REQUESTS, body, retry }
            }
            DenyStatus::Ok => Self::ok(body),
        }
    }
}

impl<B: Serialize> IntoResponse for ApiResponse<B> {
    fn into_response(self) -> Response {
        let mut response = json(self.status, &self.body);
        if let Some(retry) = self.retry {
            retry.write(response.headers_mut());
        }
        response
    }
}

/// Renders the decision on a take, peek or reserve. Without `hints` the retry time is exact.
pub(crate) fn decision<'a>(
    decision: &Decision,
    list: &'a List<'_, u64>,
    extra: ExtraFields,
    deny: DenyStatus,
    hints: Option<RetryHints<'_>>,
) -> ApiResponse<Body<'a>> {
    match decision {
        Decision::Allowed(grant) => ApiResponse::ok(Body::Allowed(allowed(grant, list, extra))),
        Decision::Denied(denial) => {
            let exact = || RetryAfter::of(denial.retry);
            let retry = hints.map_or_else(exact, |hints| hints.jittered(denial.retry));
            ApiResponse::denied(Body::Denied(denied(denial, list, retry)), retry, deny)
        }
        // The enum is non-exhaustive; an unknown kind of decision is not allowed.
        _ => ApiResponse {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            body: Body::Unknown {},
            retry: None,
        },
    }
}

fn allowed<'a>(grant: &Grant, list: &'a List<'_, u64>, extra: ExtraFields) -> Allowed<'a> {
    let (wait_ms, receipt) = match extra {
        ExtraFields::None => (None, None),
        ExtraFields::Receipt => (None, Some(encode(&grant.receipt))),
        ExtraFields::WaitAndReceipt => (Some(millis(grant.wait)), Some(encode(&grant.receipt))),
    };
    Allowed {
        allowed: true,
        remaining: min_remaining(&grant.outcomes),
        reset_after_ms: max_reset_ms(&grant.outcomes),
        wait_ms,
        receipt,
        degraded: grant.degraded.map(FailureRule::as_str),
        charges: states(list, &grant.outcomes),
    }
}

fn denied<'a>(denial: &Denial, list: &'a List<'_, u64>, retry: Option<RetryAfter>) -> Denied<'a> {
    denied_by(denial.binding, retry, (&denial.outcomes, denial.degraded), list)
}

/// Renders a denial: the binding charge, when to retry, and the state of all charges.
pub(crate) fn denied_by<'a>(
    by: usize,
    retry: Option<RetryAfter>,
    (outcomes, degraded): (&[Outcome], Option<FailureRule>),
    list: &'a List<'_, u64>,
) -> Denied<'a> {
    Denied {
        allowed: false,
        by: list.items.get(by).map_or("", |item| item.limit.name()),
        by_index: list.is_list.then_some(by),
        remaining: min_remaining(outcomes),
        retry_after_ms: retry.map(RetryAfter::millis),
        degraded: degraded.map(FailureRule::as_str),
        charges: states(list, outcomes),
    }
}

/// Renders a settlement.
pub(crate) fn settlement<'a>(
    result: &Settlement,
    list: &'a List<'_, i64>,
) -> ApiResponse<Body<'a>> {
    ApiResponse::ok(Body::Settled(Settled {
        remaining: min_remaining(&result.outcomes),
        reset_after_ms: max_reset_ms(&result.outcomes),
        saturated: result.saturated > 0,
        dropped: result.dropped > 0,
        charges: states(list, &result.outcomes),
    }))
}

/// Renders a hold.
pub(crate) fn hold(span: Duration) -> ApiResponse<Body<'static>> {
    ApiResponse::ok(Body::Held { held_ms: millis(span) })
}

/// Renders a reset.
pub(crate) const fn reset(reset: bool) -> ApiResponse<Body<'static>> {
    ApiResponse::ok(Body::Reset { reset })
}

pub(crate) fn states<'a, N>(list: &'a List<'_, N>, outcomes: &[Outcome]) -> Option<Vec<State<'a>>> {
    let names = list.items.iter().map(|item| item.limit.name());
    list.is_list.then(|| states_of(names, outcomes))
}

/// Returns the state of the charges on these limits.
pub(crate) fn states_of<'a>(
    limits: impl Iterator<Item = &'a str>,
    outcomes: &[Outcome],
) -> Vec<State<'a>> {
    let state = |(limit, outcome): (&'a str, &Outcome)| State {
        limit,
        remaining: outcome.remaining,
        reset_after_ms: outcome.reset.map(millis),
    };
    limits.zip(outcomes).map(state).collect()
}

pub(crate) fn min_remaining(outcomes: &[Outcome]) -> u64 {
    outcomes.iter().map(|outcome| outcome.remaining).min().unwrap_or(0)
}

/// Returns when all buckets are full again; `None` if one of them does not fill by time alone.
pub(crate) fn max_reset_ms(outcomes: &[Outcome]) -> Option<u64> {
    let resets = outcomes.iter().map(|outcome| outcome.reset);
    let all: Option<Vec<_>> = resets.collect();
    all?.into_iter().max().map(millis)
}

fn encode(receipt: &Receipt) -> String {
    URL_SAFE_NO_PAD.encode(receipt.to_bytes())
}
