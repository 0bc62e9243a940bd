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
use super::answer::{self, Deny, Reply, State, least, longest_reset};
use super::permit_request::Acquire;
use super::request::{Item, List, Reader};
use crate::api::body::json;
use crate::api::problem::Problem;
use crate::metrics::Verdict;
use crate::permits::{Held, HeldCharge, HeldList, Line, Wanted};

/// Minimum wait with a shared store, which needs this long to find out whether there is anything to
/// wait for.
const SHARED_WAIT: Duration = Duration::from_millis(50);

#[derive(Serialize)]
struct Acquired<'a> {
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
struct Standing {
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
        (deny, peer): (Deny, IpAddr),
    ) -> Result<Response, Problem> {
        let asked = reader.acquire(body)?;
        let engine = &self.config.parts().engine;
        if self.is_stopping() {
            return Err(Problem::Stopping);
        }
        let place = self.permits.reserve(peer)?;
        let limiters = self.limiters(&asked.list, engine)?;
        let wanted = wanted(&asked.list, &limiters);
        let Some(line) = self.permits.queues().line(engine, &wanted, asked.tenant) else {
            return Err(Problem::Invalid(Vec::new()));
        };
        let granted = tokio::select! {
            granted = wait(&line, &asked, engine) => granted,
            () = self.stopping() => return Err(Problem::Stopping),
        };
        let permit = match granted {
            Ok(permit) => permit,
            Err(error) => return not_granted(error, &asked, (&wanted, &line), engine, deny).await,
        };
        // Until the response is ready, the permit refunds everything if the caller disconnects.
        let standing = Standing::of(engine, &wanted, |_| 0).await?;
        for (item, outcome) in asked.list.items.iter().zip(&standing.outcomes) {
            item.metrics.decided(Verdict::Allowed);
            if outcome.remaining.checked_add(item.amount) == Some(outcome.capacity) {
                item.metrics.met_new_key();
            }
        }
        let waited = permit.waited();
        self.config.parts().metrics.permit_waited(waited);
        let held = held(permit, &wanted, line, &limiters);
        let id = place.fill(Held::List(Box::new(held)), asked.ttl);
        let answer = Acquired {
            allowed: true,
            id: id.to_string(),
            expires_in_ms: millis(asked.ttl),
            waited_ms: millis(waited),
            remaining: least(&standing.outcomes),
            reset_after_ms: longest_reset(&standing.outcomes),
            degraded: standing.degraded.map(FailureRule::as_str),
            charges: answer::states(&asked.list, &standing.outcomes),
        };
        Ok(json(StatusCode::OK, &answer))
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
            let made = self.permits.queues().inline(item.limit.shared_identity(), || {
                match item.calendar.as_deref() {
                    Some(calendar) => engine
                        .inline_calendar(
                            calendar.name(),
                            policy.capacity(),
                            calendar.schedule().clone(),
                        )
                        .map_err(|error| error.to_string()),
                    None => engine.inline(policy).map_err(|error| error.to_string()),
                }
            });
            made.map_err(|rule| {
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
async fn wait(line: &Line, asked: &Acquire<'_>, engine: &Engine) -> Result<Permit, AcquireError> {
    let is_shared = engine.store().local().is_none();
    let least = if is_shared { SHARED_WAIT } else { Duration::ZERO };
    let acquire = line.queue.acquire(line.charges.iter().cloned()).tenant(&line.tenant);
    let acquire = acquire.priority(asked.priority).max_wait(asked.max_wait.max(least));
    acquire.refund_on_drop(true).await
}

/// Responds to a list that was not granted.
async fn not_granted(
    error: AcquireError,
    asked: &Acquire<'_>,
    (wanted, line): (&[Wanted<'_>], &Line),
    engine: &Engine,
    deny: Deny,
) -> Result<Response, Problem> {
    let count_failure = || {
        asked.list.items.iter().for_each(|item| item.metrics.decided(Verdict::Failed));
    };
    let projected = match error {
        AcquireError::TooLong { projected, .. } => Some(RetryAfter::from(projected)),
        AcquireError::TimedOut(_) | AcquireError::WouldWait | AcquireError::NeverFits(_) => None,
        AcquireError::QueueFull(waiting) => return Err(Problem::QueueFull(waiting)),
        AcquireError::Store(error) => {
            count_failure();
            return Err(error.into());
        }
        other => {
            count_failure();
            return Err(Problem::NoWaiting(other.to_string()));
        }
    };
    let standing = Standing::of(engine, wanted, |wanted| wanted.cost).await?;
    // If all charges fit now, other waiters were ahead for an unknown time.
    let (by, retry) = standing.binding.unwrap_or((line.of, Some(RetryAfter::ON_RELEASE)));
    // A slot may be released long before its lease ends, or be renewed.
    let is_slot = wanted.get(by).is_some_and(Wanted::is_slot);
    let retry = retry.map(|retry| if is_slot { RetryAfter::ON_RELEASE } else { retry });
    let retry = match (retry, projected) {
        (Some(retry), Some(projected)) if projected.wait() > retry.wait() => Some(projected),
        (retry, _) => retry,
    };
    if let Some(item) = asked.list.items.get(by) {
        item.metrics.decided(Verdict::Denied);
    }
    let told = (standing.outcomes.as_slice(), standing.degraded);
    Ok(Reply::denied(answer::refused(by, retry, told, &asked.list), retry, deny).into_response())
}

impl Standing {
    /// Peeks at the buckets of a list with these costs; spends nothing.
    async fn of(
        engine: &Engine,
        wanted: &[Wanted<'_>],
        cost: impl Fn(&Wanted<'_>) -> u64,
    ) -> Result<Self, StoreError> {
        let snapshots: Vec<_> = wanted.iter().map(|wanted| wanted.limiter.snapshot()).collect();
        let charges: Vec<_> = std::iter::zip(&snapshots, wanted)
            .map(|(snapshot, wanted)| snapshot.charge(wanted.key, cost(wanted)))
            .collect();
        let decision: Decision = engine.operation(Operation::Peek(&charges)).await?;
        let (degraded, binding) = match &decision {
            Decision::Allowed(grant) => (grant.degraded, None),
            Decision::Denied(denial) => {
                (denial.degraded, Some((denial.by, RetryAfter::of(denial.retry))))
            }
            _ => (None, None),
        };
        Ok(Self { outcomes: decision.outcomes().to_vec(), degraded, binding })
    }
}

fn wanted<'w>(list: &'w List<'_, u64>, limiters: &'w [Arc<Limiter>]) -> Vec<Wanted<'w>> {
    let wanted = |(item, limiter): (&'w Item<'_, u64>, &'w Arc<Limiter>)| Wanted {
        limiter,
        key: item.key(),
        cost: item.amount,
    };
    list.items.iter().zip(limiters).map(wanted).collect()
}

/// Converts a granted permit to what is held by id. From now on dropping it refunds nothing.
fn held(
    mut permit: Permit,
    wanted: &[Wanted<'_>],
    line: Line,
    limiters: &[Arc<Limiter>],
) -> HeldList {
    permit.set_refund_on_drop(false);
    let charge = |wanted: &Wanted<'_>| HeldCharge {
        limit: wanted.limiter.limit().name().to_owned(),
        key: wanted.key.name().to_owned(),
        cost: wanted.cost,
        is_slot: wanted.is_slot(),
    };
    let charges = wanted.iter().map(charge).collect();
    HeldList::new(permit, charges, line.queue, limiters.to_vec())
}
