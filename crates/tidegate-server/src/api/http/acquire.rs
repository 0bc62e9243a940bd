//! `POST /v1/acquire`: waits for a list of charges and slots, and returns the id of a permit.
//!
//! If the caller disconnects before the response, the wait is dropped and anything granted is given
//! back. After the response the permit is held until it is released or expires.
//!
//! Callers act for their own users and are trusted: they name tenants and priorities as they name
//! keys and limits. One peer can use at most half of the waiting capacity.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use tidegate::pacer::{AcquireError, Permit};
use tidegate::{Decision, Engine, FailureRule, Limiter, Outcome, StoreError};
use tidegate_config::Value;
use tidegate_core::{Operation, ceil_millis as millis};
use tidegate_http::field::RetryAfter;
use tidegate_http::problem::FieldError;

use super::HttpApi;
use super::permit_request::Acquire;
use super::request::{Item, List, Reader};
use super::response::{self, ApiResponse, DenyStatus, State, max_reset_ms, min_remaining};
use crate::api::body::json;
use crate::api::problem::Problem;
use crate::metrics::DecisionOutcome;
use crate::permits::{GrantedCharge, GrantedCharges, GrantedPermit, QueueEntry, RequestedCharge};

/// Minimum wait with a shared store, which needs this long to find out whether there is anything to
/// wait for.
const MIN_SHARED_WAIT: Duration = Duration::from_millis(50);

#[derive(Serialize)]
struct AcquireResponse<'a> {
    allowed: bool,
    id: String,
    expires_in_ms: u64,
    waited_ms: u64,
    remaining: u64,
    reset_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    charges: Option<Vec<State<'a>>>,
}

/// State of the buckets of a list, as reported by the store.
struct ListState {
    outcomes: Vec<Outcome>,
    degraded: Option<FailureRule>,
    /// Index of the charge that does not fit, if any, and when to retry.
    binding: Option<(usize, Option<RetryAfter>)>,
}

impl HttpApi {
    /// `POST /v1/acquire`.
    pub(super) async fn acquire(
        &self,
        reader: Reader<'_>,
        body: &Value<'_>,
        (deny, peer): (DenyStatus, IpAddr),
    ) -> Result<Response, Problem> {
        let request = reader.acquire(body)?;
        let engine = &self.config.parts().engine;
        if self.is_stopping() {
            return Err(Problem::Stopping);
        }
        let reservation = self.permits.reserve(peer)?;
        let limiters = self.limiters(&request.list, engine)?;
        let requested = requested_charges(&request.list, &limiters);
        let Some(entry) = self.permits.queues().entry(engine, &requested, request.tenant) else {
            return Err(Problem::Invalid(Vec::new()));
        };
        let granted = tokio::select! {
            granted = wait(&entry, &request, engine) => granted,
            () = self.stopping() => return Err(Problem::Stopping),
        };
        let permit = match granted {
            Ok(permit) => permit,
            Err(error) => {
                return deny_response(error, &request, (&requested, &entry), engine, deny).await;
            }
        };
        // Until the response is ready, the permit refunds everything if the caller disconnects.
        let state = ListState::peek(engine, &requested, |_| 0).await?;
        for (item, outcome) in request.list.items.iter().zip(&state.outcomes) {
            item.metrics.count(DecisionOutcome::Allowed);
            if outcome.remaining.checked_add(item.amount) == Some(outcome.capacity) {
                item.metrics.count_new_key();
            }
        }
        let waited = permit.waited();
        self.config.parts().metrics.permit_waited(waited);
        let granted_charges = into_granted(permit, &requested, entry, &limiters);
        let id = reservation.grant(GrantedPermit::Charges(Box::new(granted_charges)), request.ttl);
        let response = AcquireResponse {
            allowed: true,
            id: id.to_string(),
            expires_in_ms: millis(request.ttl),
            waited_ms: millis(waited),
            remaining: min_remaining(&state.outcomes),
            reset_after_ms: max_reset_ms(&state.outcomes),
            degraded: state.degraded.map(FailureRule::as_str),
            charges: response::states(&request.list, &state.outcomes),
        };
        Ok(json(StatusCode::OK, &response))
    }

    /// Returns the limiters of a list. Those of inline policies live as long as the permit, and are
    /// shared by all waiters on the same policy.
    fn limiters(
        &self,
        list: &List<'_, u64>,
        engine: &Engine,
    ) -> Result<Vec<Arc<Limiter>>, Problem> {
        let limiter = |(index, item): (usize, &Item<'_, u64>)| {
            if let Some(limiter) = item.limiter {
                return Ok(Arc::new(limiter.clone()));
            }
            let policy = *item.limit.policy();
            let limiter = self.permits.queues().inline(item.limit.shared_identity(), || match item
                .calendar
                .as_deref()
            {
                Some(calendar) => engine
                    .inline_calendar(
                        calendar.name(),
                        policy.capacity(),
                        calendar.schedule().clone(),
                    )
                    .map_err(|error| error.to_string()),
                None => engine.inline(policy).map_err(|error| error.to_string()),
            });
            limiter.map_err(|rule| {
                Problem::Invalid(vec![FieldError {
                    field: format!("charges[{index}].policy"),
                    rule,
                }])
            })
        };
        list.items.iter().enumerate().map(limiter).collect()
    }
}

/// Waits for a list, up to the requested time.
async fn wait(
    entry: &QueueEntry,
    request: &Acquire<'_>,
    engine: &Engine,
) -> Result<Permit, AcquireError> {
    let is_shared = engine.store().local().is_none();
    let min_wait = if is_shared { MIN_SHARED_WAIT } else { Duration::ZERO };
    let acquire = entry.queue.acquire(entry.charges.iter().cloned()).tenant(&entry.tenant);
    let acquire = acquire.priority(request.priority).max_wait(request.max_wait.max(min_wait));
    acquire.refund_on_drop(true).await
}

/// Responds to a list that was not granted.
async fn deny_response(
    error: AcquireError,
    request: &Acquire<'_>,
    (requested, entry): (&[RequestedCharge<'_>], &QueueEntry),
    engine: &Engine,
    deny: DenyStatus,
) -> Result<Response, Problem> {
    let count_failed = || {
        request.list.items.iter().for_each(|item| item.metrics.count(DecisionOutcome::Failed));
    };
    let projected = match error {
        AcquireError::TooLong { projected, .. } => Some(RetryAfter::from(projected)),
        AcquireError::TimedOut(_) | AcquireError::WouldWait | AcquireError::NeverFits(_) => None,
        AcquireError::QueueFull(waiting) => return Err(Problem::QueueFull(waiting)),
        AcquireError::Store(error) => {
            count_failed();
            return Err(error.into());
        }
        other => {
            count_failed();
            return Err(Problem::CannotWait(other.to_string()));
        }
    };
    let state = ListState::peek(engine, requested, |requested| requested.cost).await?;
    // If all charges fit now, other waiters were ahead for an unknown time.
    let (by, retry) = state.binding.unwrap_or((entry.charge_index, Some(RetryAfter::ON_RELEASE)));
    // A slot may be released long before its lease ends, or be renewed.
    let is_slot = requested.get(by).is_some_and(RequestedCharge::is_slot);
    let retry = retry.map(|retry| if is_slot { RetryAfter::ON_RELEASE } else { retry });
    let retry = match (retry, projected) {
        (Some(retry), Some(projected)) if projected.wait() > retry.wait() => Some(projected),
        (retry, _) => retry,
    };
    if let Some(item) = request.list.items.get(by) {
        item.metrics.count(DecisionOutcome::Denied);
    }
    let outcome = (state.outcomes.as_slice(), state.degraded);
    Ok(ApiResponse::denied(response::denied_by(by, retry, outcome, &request.list), retry, deny)
        .into_response())
}

impl ListState {
    /// Peeks at the buckets of a list with these costs; spends nothing.
    async fn peek(
        engine: &Engine,
        requested: &[RequestedCharge<'_>],
        cost: impl Fn(&RequestedCharge<'_>) -> u64,
    ) -> Result<Self, StoreError> {
        let snapshots: Vec<_> =
            requested.iter().map(|requested| requested.limiter.snapshot()).collect();
        let charges: Vec<_> = std::iter::zip(&snapshots, requested)
            .map(|(snapshot, requested)| snapshot.charge(requested.key, cost(requested)))
            .collect();
        let decision: Decision = engine.operation(Operation::Peek(&charges)).await?;
        let (degraded, binding) = match &decision {
            Decision::Allowed(grant) => (grant.degraded, None),
            Decision::Denied(denial) => {
                (denial.degraded, Some((denial.binding, RetryAfter::of(denial.retry))))
            }
            _ => (None, None),
        };
        Ok(Self { outcomes: decision.outcomes().to_vec(), degraded, binding })
    }
}

fn requested_charges<'w>(
    list: &'w List<'_, u64>,
    limiters: &'w [Arc<Limiter>],
) -> Vec<RequestedCharge<'w>> {
    let requested = |(item, limiter): (&'w Item<'_, u64>, &'w Arc<Limiter>)| RequestedCharge {
        limiter,
        key: item.key(),
        cost: item.amount,
    };
    list.items.iter().zip(limiters).map(requested).collect()
}

/// Converts a granted permit to what is held by id. From now on dropping it refunds nothing.
fn into_granted(
    mut permit: Permit,
    requested: &[RequestedCharge<'_>],
    entry: QueueEntry,
    limiters: &[Arc<Limiter>],
) -> GrantedCharges {
    permit.set_refund_on_drop(false);
    let charge = |requested: &RequestedCharge<'_>| GrantedCharge {
        limit: requested.limiter.limit().name().to_owned(),
        key: requested.key.name().to_owned(),
        cost: requested.cost,
        is_slot: requested.is_slot(),
    };
    let charges = requested.iter().map(charge).collect();
    GrantedCharges::new(permit, charges, entry.queue, limiters.to_vec())
}
