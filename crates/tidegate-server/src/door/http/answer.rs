//! From a decision to JSON and headers. Durations are whole milliseconds, rounded up.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use tidegate::{Decision, Denial, FailureRule, Grant, Outcome, Receipt, Settlement};

use super::request::List;
use crate::door::body::json;
use crate::door::problem::whole_seconds;

/// What an answer to an allowed request tells besides the state.
#[derive(Clone, Copy)]
pub(crate) enum Extra {
    Nothing,
    Receipt,
    WaitAndReceipt,
}

/// `degraded` is the failure rule that decided because the store did not answer, in both answers.
#[derive(Serialize)]
struct Allowed<'a> {
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
struct Denied<'a> {
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
struct Settled<'a> {
    remaining: u64,
    reset_after_ms: Option<u64>,
    saturated: bool,
    dropped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    charges: Option<Vec<State<'a>>>,
}

#[derive(Serialize)]
struct Held {
    held_ms: u64,
}

#[derive(Serialize)]
struct Reset {
    reset: bool,
}

/// How one charge of a list stands.
#[derive(Serialize)]
struct State<'a> {
    limit: &'a str,
    remaining: u64,
    reset_after_ms: Option<u64>,
}

/// Answers a take, peek or reserve.
pub(crate) fn decided(
    decision: &Decision,
    list: &List<'_, u64>,
    extra: Extra,
    denials_are_ok: bool,
) -> Response {
    match decision {
        Decision::Allowed(grant) => allowed(grant, list, extra),
        Decision::Denied(denial) => denied(denial, list, denials_are_ok),
        // The contract may grow; what is not known to be allowed is not.
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn allowed(grant: &Grant, list: &List<'_, u64>, extra: Extra) -> Response {
    let (wait_ms, receipt) = match extra {
        Extra::Nothing => (None, None),
        Extra::Receipt => (None, Some(encoded(&grant.receipt))),
        Extra::WaitAndReceipt => (Some(millis(grant.wait)), Some(encoded(&grant.receipt))),
    };
    json(
        StatusCode::OK,
        &Allowed {
            allowed: true,
            remaining: least(&grant.outcomes),
            reset_after_ms: longest_reset(&grant.outcomes),
            wait_ms,
            receipt,
            degraded: grant.degraded.map(FailureRule::as_str),
            charges: states(list, &grant.outcomes),
        },
    )
}

fn denied(denial: &Denial, list: &List<'_, u64>, denials_are_ok: bool) -> Response {
    let retry = denial.retry.after();
    let body = Denied {
        allowed: false,
        by: list.items.get(denial.by).map_or("", |item| item.limit.name()),
        by_index: list.listed.then_some(denial.by),
        remaining: least(&denial.outcomes),
        retry_after_ms: retry.map(millis),
        degraded: denial.degraded.map(FailureRule::as_str),
        charges: states(list, &denial.outcomes),
    };
    self::denial(&body, retry, denials_are_ok)
}

/// Answers that somebody was denied, with the wait if there is one.
pub(crate) fn denial(
    body: &impl Serialize,
    retry: Option<Duration>,
    denials_are_ok: bool,
) -> Response {
    if denials_are_ok {
        return json(StatusCode::OK, body);
    }
    let mut response = json(StatusCode::TOO_MANY_REQUESTS, body);
    if let Some(wait) = retry {
        response.headers_mut().insert(header::RETRY_AFTER, whole_seconds(wait).into());
    }
    response
}

/// Answers a settle.
pub(crate) fn settled(settlement: &Settlement, list: &List<'_, i64>) -> Response {
    json(
        StatusCode::OK,
        &Settled {
            remaining: least(&settlement.outcomes),
            reset_after_ms: longest_reset(&settlement.outcomes),
            saturated: settlement.saturated > 0,
            dropped: settlement.dropped > 0,
            charges: states(list, &settlement.outcomes),
        },
    )
}

/// Answers a hold.
pub(crate) fn held(span: Duration) -> Response {
    json(StatusCode::OK, &Held { held_ms: millis(span) })
}

/// Answers a reset.
pub(crate) fn reset(reset: bool) -> Response {
    json(StatusCode::OK, &Reset { reset })
}

fn states<'a, N>(list: &'a List<'_, N>, outcomes: &[Outcome]) -> Option<Vec<State<'a>>> {
    let states = || {
        list.items.iter().zip(outcomes).map(|(item, outcome)| State {
            limit: item.limit.name(),
            remaining: outcome.remaining,
            reset_after_ms: outcome.reset.map(millis),
        })
    };
    list.listed.then(|| states().collect())
}

fn least(outcomes: &[Outcome]) -> u64 {
    outcomes.iter().map(|outcome| outcome.remaining).min().unwrap_or(0)
}

/// When all buckets are full again; `None` if time alone does not fill one of them.
fn longest_reset(outcomes: &[Outcome]) -> Option<u64> {
    let resets = outcomes.iter().map(|outcome| outcome.reset);
    let all: Option<Vec<_>> = resets.collect();
    all?.into_iter().max().map(millis)
}

fn encoded(receipt: &Receipt) -> String {
    URL_SAFE_NO_PAD.encode(receipt.to_bytes())
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
