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
use tidegate_llm::rate_limit::{LimitView, QueueView};
use tidegate_providers::Provider;
use tidegate_providers::name::short_hash;

use super::AdminState;
use super::problem::AdminProblem;
use crate::api::body::json;

/// Maximum number of queues shown per account, and of models per queue.
const MAX_SHOWN: usize = 64;
/// Maximum number of characters shown of a model name, which callers choose.
const MAX_MODEL_CHARS: usize = 128;

/// `GET /admin/providers`.
pub(super) async fn all(State(state): State<Arc<AdminState>>) -> Response {
    #[derive(Serialize)]
    struct ProvidersJson {
        providers: Vec<ProviderJson>,
    }
    let providers = state.parts().gateway.inspect().await;
    json(
        StatusCode::OK,
        &ProvidersJson { providers: providers.into_iter().map(ProviderJson::of).collect() },
    )
}

/// `GET /admin/providers/NAME`.
pub(super) async fn one(
    State(state): State<Arc<AdminState>>,
    Path(name): Path<String>,
) -> Result<Response, AdminProblem> {
    let mut providers = state.parts().gateway.inspect().await;
    let name = Provider::new(&name);
    match providers.iter().position(|view| view.status.provider == name) {
        Some(index) => Ok(json(StatusCode::OK, &ProviderJson::of(providers.swap_remove(index)))),
        None => Err(AdminProblem::UnknownProvider(
            providers.iter().map(|view| view.status.provider.as_str().to_owned()).collect(),
        )),
    }
}

#[derive(Serialize)]
struct ProviderJson {
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
    tenants: Vec<TenantJson>,
    waiting_of_other_tenants: usize,
    /// Limits that all API keys of callers share.
    all_keys: Vec<LimitJson>,
    accounts_known: usize,
    accounts: Vec<AccountJson>,
}

#[derive(Serialize)]
struct TenantJson {
    tenant: String,
    /// The hash that identifies the tenant in metrics.
    id: String,
    waiting: usize,
    oldest_wait_ms: u64,
}

#[derive(Serialize)]
struct AccountJson {
    owner: &'static str,
    /// The hash of its API key.
    id: String,
    queues_known: usize,
    queues: Vec<QueueJson>,
}

#[derive(Serialize)]
struct QueueJson {
    /// `null` if all models share the queue.
    model: Option<String>,
    endpoint: Option<String>,
    in_flight: u64,
    concurrency_limit: Option<u64>,
    waiting: usize,
    limited_by: Option<&'static str>,
    /// Configured limits.
    limits: Vec<LimitJson>,
    models_known: usize,
    /// Learned limits, by model.
    models: Vec<ModelJson>,
}

#[derive(Serialize)]
struct ModelJson {
    model: String,
    hold: Option<HoldJson>,
    limits: Vec<LimitJson>,
}

#[derive(Serialize)]
struct HoldJson {
    remaining_ms: u64,
    cause: &'static str,
}

#[derive(Serialize)]
struct LimitJson {
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
    reported: Option<ReportJson>,
    bucket: Option<BucketJson>,
    pace: Option<PaceJson>,
}

#[derive(Serialize)]
struct ReportJson {
    remaining: u64,
    reset_ms: Option<u64>,
    from: &'static str,
    age_ms: u64,
}

#[derive(Serialize)]
struct BucketJson {
    remaining: i64,
    capacity: u64,
}

#[derive(Serialize)]
struct PaceJson {
    per_minute: u64,
    burst: u64,
    slowed_to: Option<f64>,
    ramp_remaining_ms: Option<u64>,
}

impl ProviderJson {
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
            tenants: tenants.longest.iter().map(TenantJson::of).collect(),
            waiting_of_other_tenants: tenants.waiting_of_other_tenants,
            all_keys: view.all_keys.iter().map(LimitJson::of).collect(),
            accounts_known: status.accounts,
            accounts: view.accounts.into_iter().map(AccountJson::of).collect(),
        }
    }
}

impl TenantJson {
    fn of(queue: &TenantQueue) -> Self {
        Self {
            tenant: queue.tenant.as_ref().to_owned(),
            id: short_hash(&queue.tenant),
            waiting: queue.waiting,
            oldest_wait_ms: millis(queue.oldest_wait),
        }
    }
}

impl AccountJson {
    fn of(mut view: AccountView) -> Self {
        // The busiest queues come first, as not all may be shown.
        let load = |queue: &QueueView| {
            queue.gauges.in_flight + u64::try_from(queue.gauges.waiting).unwrap_or(u64::MAX / 2)
        };
        view.queues.sort_by_key(|queue| Reverse(load(queue)));
        let queues_known = view.queues.len();
        Self {
            owner: view.owner.name(),
            id: view.id,
            queues_known,
            queues: view.queues.iter().take(MAX_SHOWN).map(QueueJson::of).collect(),
        }
    }
}

impl QueueJson {
    fn of(view: &QueueView) -> Self {
        // Models with known limits come first, as not all may be shown.
        let mut models: Vec<&str> = view.models().collect();
        let is_unlimited =
            |model: &str| view.model_limits(model).is_empty() && view.model_hold(model).is_none();
        models.sort_by_key(|model| is_unlimited(model));
        Self {
            model: view.model.as_deref().map(truncate),
            endpoint: view.endpoint.as_ref().map(|endpoint| endpoint.as_str().to_owned()),
            in_flight: view.gauges.in_flight,
            concurrency_limit: view.gauges.concurrency,
            waiting: view.gauges.waiting,
            limited_by: view.limited_by,
            limits: view.limits.iter().map(LimitJson::of).collect(),
            models_known: models.len(),
            models: models
                .into_iter()
                .take(MAX_SHOWN)
                .map(|model| ModelJson::of(view, model))
                .collect(),
        }
    }
}

impl ModelJson {
    fn of(queue: &QueueView, model: &str) -> Self {
        let hold = |(left, cause)| HoldJson { remaining_ms: millis(left), cause };
        Self {
            model: truncate(model),
            hold: queue.model_hold(model).map(hold),
            limits: queue.model_limits(model).iter().map(LimitJson::of).collect(),
        }
    }
}

impl LimitJson {
    fn of(view: &LimitView) -> Self {
        let report = |(remaining, (from, age))| ReportJson {
            remaining,
            reset_ms: view.reported_reset.map(millis),
            from,
            age_ms: millis(age),
        };
        let bucket = |(remaining, capacity)| BucketJson { remaining, capacity };
        let pace = |(per_minute, burst)| PaceJson {
            per_minute,
            burst,
            slowed_to: view.slowed_to,
            ramp_remaining_ms: view.ramp_remaining.map(millis),
        };
        Self {
            dimension: view.name,
            applies_to: view.applies_to.as_deref().map(truncate),
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

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn truncate(model: &str) -> String {
    model.chars().take(MAX_MODEL_CHARS).collect()
}
