//! Admission over HTTP: checks requests, and reads or sets the number of pending ones.
//!
//! A decision is 200 or 429, even under back-pressure: a 503 would mean that this server could not
//! decide.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use tidegate::admission::{Admission, AdmissionDecision, AdmittedRequest, Caller, Rejection, Tier};
use tidegate::{FailureRule, Outcome};
use tidegate_config::{Rule, Value};
use tidegate_core::ceil_millis as millis;
use tidegate_http::field::RetryAfter;

use super::audit::Auditor;
use super::permit_request;
use super::request::{self, key_text, read};
use super::response::{ApiResponse, DenyStatus};
use crate::api::body::json;
use crate::api::problem::Problem;
use crate::configuration::limits::ConfiguredLimits;
use crate::metrics::{AdmissionMetrics, DecisionOutcome};
use crate::permits::{GrantedPermit, Permits};

/// Default lifetime of a reported number of pending requests.
const DEFAULT_PENDING_TTL: Duration = Duration::from_secs(10);
/// Longest accepted lifetime.
const MAX_PENDING_TTL: Duration = Duration::from_secs(3_600);

#[derive(Serialize)]
struct Admitted {
    allowed: bool,
    /// Fewest tokens left in any charged tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<&'static str>,
    /// The permit that keeps the request pending, if requested.
    #[serde(flatten)]
    permit: Option<PendingPermit>,
    /// In shadow mode: the rejection that would have applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_reject: Option<Reject>,
    charges: Vec<TierState>,
}

/// The permit that keeps an admitted request pending.
#[derive(Serialize)]
struct PendingPermit {
    id: String,
    expires_in_ms: u64,
}

#[derive(Serialize)]
struct Rejected<'a> {
    allowed: bool,
    #[serde(flatten)]
    reject: Reject,
    /// The rejected client or organization; `None` under back-pressure.
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<&'static str>,
    charges: Vec<TierState>,
}

#[derive(Serialize)]
struct Reject {
    level: &'static str,
    reason: &'static str,
    retry_after_ms: Option<u64>,
}

#[derive(Serialize)]
struct TierState {
    limit: &'static str,
    remaining: u64,
    reset_after_ms: Option<u64>,
}

#[derive(Serialize)]
struct Pending {
    pending: u32,
}

/// An admission request.
struct AdmitRequest<'v> {
    caller: Caller<'v>,
    /// How long the request counts as pending once admitted, if it asked for that.
    hold: Option<Duration>,
}

/// `POST /v1/admit`. The connection defaults to the address of the peer.
pub(super) async fn admit(
    admission: &Admission,
    (limits, admissions): (&ConfiguredLimits, &AdmissionMetrics),
    permits: &Permits,
    body: &Value<'_>,
    (deny, peer): (DenyStatus, IpAddr),
) -> Result<Response, Problem> {
    let address = OnceLock::new();
    let count = |tier: Tier, outcome| {
        if let Some(limit) = limits.get(tier.as_str()) {
            limit.metrics.count(outcome);
        }
    };
    let AdmitRequest { caller, hold } =
        parse_admit(body, || address.get_or_init(|| peer.to_canonical().to_string()).as_str())?;
    let reservation = match hold {
        Some(ttl) => Some((permits.reserve(peer)?, ttl)),
        None => None,
    };
    let decision = admission.admit(caller).await?;
    admissions.count(&decision);
    Ok(match decision {
        AdmissionDecision::Admitted(admitted) => {
            admitted.outcomes().for_each(|(tier, _)| count(tier, DecisionOutcome::Allowed));
            let mut response = admitted_response(&admitted);
            response.permit = reservation.map(|(reservation, ttl)| PendingPermit {
                id: reservation
                    .grant(GrantedPermit::Pending(admitted.into_in_flight()), ttl)
                    .to_string(),
                expires_in_ms: millis(ttl),
            });
            json(StatusCode::OK, &response)
        }
        AdmissionDecision::Rejected(rejection) => {
            count(rejection.tier, DecisionOutcome::Denied);
            let retry = RetryAfter::of(rejection.retry);
            ApiResponse::denied(rejected(&rejection), retry, deny).into_response()
        }
        // The enum is non-exhaustive; an unknown result is not admitted.
        _ => json(StatusCode::TOO_MANY_REQUESTS, &()),
    })
}

fn parse_admit<'v>(
    body: &'v Value<'v>,
    address: impl FnOnce() -> &'v str,
) -> Result<AdmitRequest<'v>, Problem> {
    let known = ["organization", "client", "connection", "cost", "hold", "ttl_ms"];
    read(body, &known, |top| {
        let organization = top.read("organization", key_text);
        let client = top.read("client", key_text);
        let connection = top.read("connection", key_text);
        let hold = top.read("hold", Value::to_bool).unwrap_or(false);
        let ttl = match top.get("ttl_ms") {
            Some(_) if !hold => {
                top.report("ttl_ms", Rule::Other(Box::new(AdmitRule::NotHeld)));
                None
            }
            Some(_) => top.read("ttl_ms", permit_request::ttl),
            None => Some(permit_request::DEFAULT_TTL),
        };
        let mut caller = Caller::new().cost(request::cost(top)?);
        if let Some(organization) = organization {
            caller = caller.organization(organization);
        }
        if let Some(client) = client {
            caller = caller.client(client);
        }
        if let Some(connection) = connection {
            caller = caller.connection(connection);
        } else if client.is_none() {
            caller = caller.connection(address());
        }
        let ttl = ttl?;
        Some(AdmitRequest { caller, hold: hold.then_some(ttl) })
    })
}

/// Validation rules of admission, in addition to those of keys and costs.
#[derive(Debug, thiserror::Error)]
enum AdmitRule {
    #[error("is only allowed with `\"hold\": true`")]
    NotHeld,
}

fn admitted_response(admitted: &AdmittedRequest<'_>) -> Admitted {
    Admitted {
        allowed: true,
        remaining: admitted.outcomes().map(|(_, outcome)| outcome.remaining).min(),
        degraded: admitted.degraded().map(FailureRule::as_str),
        permit: None,
        would_reject: admitted.would_reject().map(reject),
        charges: admitted.outcomes().map(state).collect(),
    }
}

fn rejected<'r>(rejection: &Rejection<'r>) -> Rejected<'r> {
    Rejected {
        allowed: false,
        reject: reject(rejection),
        id: rejection.id,
        degraded: rejection.degraded.map(FailureRule::as_str),
        charges: rejection.outcomes().map(state).collect(),
    }
}

fn reject(rejection: &Rejection<'_>) -> Reject {
    Reject {
        level: rejection.tier.as_str(),
        reason: rejection.tier.reason(),
        retry_after_ms: RetryAfter::of(rejection.retry).map(RetryAfter::millis),
    }
}

fn state((tier, outcome): (Tier, &Outcome)) -> TierState {
    TierState {
        limit: tier.as_str(),
        remaining: outcome.remaining,
        reset_after_ms: outcome.reset.map(millis),
    }
}

/// `PUT /v1/pending`.
pub(super) fn set_pending(
    admission: &Admission,
    body: &Value<'_>,
    auditor: &Auditor<'_>,
) -> Result<Response, Problem> {
    let (value, ttl) = read(body, &["value", "ttl_ms"], |top| {
        let value = top.require("value", depth);
        let ttl = match top.get("ttl_ms") {
            Some(_) => top.read("ttl_ms", lifetime),
            None => Some(DEFAULT_PENDING_TTL),
        };
        Some((value?, ttl?))
    })?;
    admission.set_pending(value, ttl);
    auditor.log_pending(value, ttl);
    Ok(pending(admission))
}

/// `GET /v1/pending`.
pub(super) fn pending(admission: &Admission) -> Response {
    json(StatusCode::OK, &Pending { pending: admission.pending() })
}

/// Parses the lifetime of a reported number. It is short because a stale number would keep
/// rejecting requests after its sender died.
fn lifetime(value: &Value<'_>) -> Result<Duration, Rule> {
    value.to_whole_between(0, MAX_PENDING_TTL.as_secs() * 1_000).map(Duration::from_millis)
}

/// Parses a queue depth.
fn depth(value: &Value<'_>) -> Result<u32, Rule> {
    let depth = value.to_whole_between(0, u32::MAX.into())?;
    Ok(u32::try_from(depth).unwrap_or(u32::MAX))
}
