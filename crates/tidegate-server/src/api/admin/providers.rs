//! Shows providers: their limits and where they come from, what is left, and who waits for what.
//!
//! Lists are bounded. API keys are shown by their hashes. Tenants are shown by name, since readers
//! of this API are operators.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tidegate_gateway::{AccountView, ProviderView, TenantQueue};
use tidegate_llm::rate_limit::{LimitView, ModelView, QueueView};
use tidegate_providers::Provider;
use tidegate_providers::name::short_hash;

use super::Open;
use super::problem::AdminProblem;
use crate::api::body::json;

/// Maximum number of queues shown per account, and of models per queue.
const MOST_SHOWN: usize = 64;
/// Maximum number of characters shown of a model name, which callers choose.
const LONGEST_MODEL: usize = 128;

/// `GET /admin/providers`.
pub(super) async fn all(State(open): State<Arc<Open>>) -> Response {
    #[derive(Serialize)]
    struct Shown {
        providers: Vec<ShownProvider>,
    }
    let seen = open.parts().gateway.inspect().await;
    json(StatusCode::OK, &Shown { providers: seen.into_iter().map(ShownProvider::of).collect() })
}

/// `GET /admin/providers/NAME`.
pub(super) async fn one(
    State(open): State<Arc<Open>>,
    Path(name): Path<String>,
) -> Result<Response, AdminProblem> {
    let mut seen = open.parts().gateway.inspect().await;
    let name = Provider::new(&name);
    match seen.iter().position(|view| view.status.provider == name) {
        Some(index) => Ok(json(StatusCode::OK, &ShownProvider::of(seen.swap_remove(index)))),
        None => Err(AdminProblem::UnknownProvider(
            seen.iter().map(|view| view.status.provider.as_str().to_owned()).collect(),
        )),
    }
}

#[derive(Serialize)]
struct ShownProvider {
    provider: String,
    /// What the calls in the longest queue wait for.
    limited_by: Option<&'static str>,
    /// What a call last waited for within the last minute.
    last_limited_by: Option<&'static str>,
    in_flight: u64,
    concurrency_limit: Option<u64>,
    waiting: usize,
    oldest_wait_ms: u64,
    /// Number of tenants with waiting calls.
    tenants_waiting: usize,
    tenants: Vec<ShownTenant>,
    waiting_of_other_tenants: usize,
    /// Limits that all API keys of callers share.
    all_keys: Vec<ShownLimit>,
    accounts_known: usize,
    accounts: Vec<ShownAccount>,
}

#[derive(Serialize)]
struct ShownTenant {
    tenant: String,
    /// The hash that identifies the tenant in metrics.
    id: String,
    waiting: usize,
    oldest_wait_ms: u64,
}

#[derive(Serialize)]
struct ShownAccount {
    owner: &'static str,
    /// The hash of its API key.
    id: String,
    queues_known: usize,
    queues: Vec<ShownQueue>,
}

#[derive(Serialize)]
struct ShownQueue {
    /// `null` if all models share the queue.
    model: Option<String>,
    endpoint: Option<String>,
    in_flight: u64,
    concurrency_limit: Option<u64>,
    waiting: usize,
    limited_by: Option<&'static str>,
    /// Configured limits.
    limits: Vec<ShownLimit>,
    models_known: usize,
    /// Learned limits, by model.
    models: Vec<ShownModel>,
}

#[derive(Serialize)]
struct ShownModel {
    model: String,
    hold: Option<ShownHold>,
    limits: Vec<ShownLimit>,
}

#[derive(Serialize)]
struct ShownHold {
    remaining_ms: u64,
    cause: &'static str,
}

#[derive(Serialize)]
struct ShownLimit {
    dimension: &'static str,
    /// The endpoint or models that the limit is for; `null` if for all of the queue.
    applies_to: Option<String>,
    limit: Option<u64>,
    window_ms: Option<u64>,
    limit_per_minute: Option<u64>,
    source: &'static str,
    learned_from: Option<&'static str>,
    learned_ms_ago: Option<u64>,
    in_force: bool,
    used_ratio: Option<f64>,
    used_in_last_minute: u64,
    reserved: u64,
    reported: Option<ShownReport>,
    bucket: Option<ShownBucket>,
    pace: Option<ShownPace>,
}

#[derive(Serialize)]
struct ShownReport {
    remaining: u64,
    reset_ms: Option<u64>,
    from: &'static str,
    age_ms: u64,
}

#[derive(Serialize)]
struct ShownBucket {
    remaining: i64,
    capacity: u64,
}

#[derive(Serialize)]
struct ShownPace {
    per_minute: u64,
    burst: u64,
    slowed_to: Option<f64>,
    ramp_remaining_ms: Option<u64>,
}

impl ShownProvider {
    fn of(view: ProviderView) -> Self {
        let queues = view.queues().filter(|queue| queue.gauges.waiting > 0);
        let longest = queues.max_by_key(|queue| queue.gauges.waiting);
        let (status, tenants) = (&view.status, &view.tenants);
        Self {
            provider: status.provider.as_str().to_owned(),
            limited_by: longest.and_then(|queue| queue.limited_by),
            last_limited_by: status.binding,
            in_flight: status.in_flight,
            concurrency_limit: status.concurrency,
            waiting: status.queued,
            oldest_wait_ms: millis(status.oldest_wait),
            tenants_waiting: tenants.tenants,
            tenants: tenants.longest.iter().map(ShownTenant::of).collect(),
            waiting_of_other_tenants: tenants.waiting_of_others,
            all_keys: view.all_keys.iter().map(ShownLimit::of).collect(),
            accounts_known: status.accounts,
            accounts: view.accounts.into_iter().map(ShownAccount::of).collect(),
        }
    }
}

impl ShownTenant {
    fn of(queue: &TenantQueue) -> Self {
        Self {
            tenant: queue.tenant.as_ref().to_owned(),
            id: short_hash(&queue.tenant),
            waiting: queue.waiting,
            oldest_wait_ms: millis(queue.oldest_wait),
        }
    }
}

impl ShownAccount {
    fn of(mut view: AccountView) -> Self {
        // The busiest queues come first, as not all may be shown.
        let busy = |queue: &QueueView| {
            queue.gauges.in_flight + u64::try_from(queue.gauges.waiting).unwrap_or(u64::MAX / 2)
        };
        view.queues.sort_by_key(|queue| Reverse(busy(queue)));
        let queues_known = view.queues.len();
        Self {
            owner: view.owner.name(),
            id: view.id,
            queues_known,
            queues: view.queues.iter().take(MOST_SHOWN).map(ShownQueue::of).collect(),
        }
    }
}

impl ShownQueue {
    fn of(view: &QueueView) -> Self {
        // Models with known limits come first, as not all may be shown.
        let mut models: Vec<&ModelView> = view.models.iter().collect();
        models.sort_by_key(|model| model.limits.is_empty() && model.hold.is_none());
        Self {
            model: view.model.as_deref().map(short),
            endpoint: view.endpoint.as_ref().map(|endpoint| endpoint.as_str().to_owned()),
            in_flight: view.gauges.in_flight,
            concurrency_limit: view.gauges.concurrency,
            waiting: view.gauges.waiting,
            limited_by: view.limited_by,
            limits: view.limits.iter().map(ShownLimit::of).collect(),
            models_known: models.len(),
            models: models.into_iter().take(MOST_SHOWN).map(ShownModel::of).collect(),
        }
    }
}

impl ShownModel {
    fn of(view: &ModelView) -> Self {
        let hold = |(left, cause)| ShownHold { remaining_ms: millis(left), cause };
        Self {
            model: short(&view.model),
            hold: view.hold.map(hold),
            limits: view.limits.iter().map(ShownLimit::of).collect(),
        }
    }
}

impl ShownLimit {
    fn of(view: &LimitView) -> Self {
        let report = |(remaining, (from, age))| ShownReport {
            remaining,
            reset_ms: view.reported_reset.map(millis),
            from,
            age_ms: millis(age),
        };
        let bucket = |(remaining, capacity)| ShownBucket { remaining, capacity };
        let pace = |(per_minute, burst)| ShownPace {
            per_minute,
            burst,
            slowed_to: view.slowed_to,
            ramp_remaining_ms: view.ramp_left.map(millis),
        };
        Self {
            dimension: view.name,
            applies_to: view.applies_to.as_deref().map(short),
            limit: view.allowed.map(|(amount, _)| amount),
            window_ms: view.allowed.map(|(_, window)| millis(window)),
            limit_per_minute: view.per_minute(),
            source: view.source,
            learned_from: view.learned.map(|(from, _)| from),
            learned_ms_ago: view.learned.map(|(_, age)| millis(age)),
            in_force: view.in_force,
            used_ratio: view.used_ratio(),
            used_in_last_minute: view.used_in_last_minute,
            reserved: view.reserved,
            reported: view.reported.zip(view.reported_in).map(report),
            bucket: view.bucket.map(bucket),
            pace: view.pace.map(pace),
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn short(model: &str) -> String {
    model.chars().take(LONGEST_MODEL).collect()
}
