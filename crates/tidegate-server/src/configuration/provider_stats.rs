//! Converts the gateway's view of providers into statistics for metrics.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidegate_gateway::{Gateway, ProviderView};
use tidegate_llm::rate_limit::{LimitView, QueueView};
use tidegate_providers::name::short_hash;

use crate::metrics::{BreakerStats, LimitStats, LlmMetrics, ProviderStats};

/// Label of limits that apply to all models together.
const ALL: &str = "all";
/// Label of tenants beyond those counted separately.
const OTHER: &str = "other";

/// A future of the statistics.
pub(super) type StatsFuture = Pin<Box<dyn Future<Output = Vec<ProviderStats>> + Send>>;

/// Returns a function that reads the state of the gateway's queues and limits.
pub(super) fn stats_source(
    gateway: &Gateway,
    llm: LlmMetrics,
) -> impl Fn() -> StatsFuture + Send + Sync + 'static {
    let gateway = gateway.clone();
    move || {
        let (gateway, llm) = (gateway.clone(), llm.clone());
        Box::pin(async move {
            gateway.inspect().await.iter().map(|view| from_view(view, &llm)).collect()
        })
    }
}

fn from_view(view: &ProviderView, llm: &LlmMetrics) -> ProviderStats {
    let name = view.status.provider.as_str();
    let mut tenants: Vec<(String, usize)> = view
        .tenants
        .longest
        .iter()
        .map(|queue| (short_hash(&queue.tenant), queue.waiting))
        .collect();
    if view.tenants.waiting_of_other_tenants > 0 {
        tenants.push((OTHER.to_owned(), view.tenants.waiting_of_other_tenants));
    }
    let active_holds =
        view.queues().flat_map(|queue| queue.models().filter_map(|model| queue.model_hold(model)));
    let holds = active_holds
        .fold((0, Duration::ZERO), |(count, longest), hold| (count + 1, longest.max(hold.0)));
    let in_force = || {
        let limits = view.queues().flat_map(QueueView::all_limits);
        limits.filter(|(_, limit)| limit.in_force && limit.dimension.is_some())
    };
    let mut used: BTreeMap<&'static str, f64> = BTreeMap::new();
    let mut limits: BTreeMap<(Arc<str>, &'static str), LimitStats> = BTreeMap::new();
    for (model, limit) in in_force() {
        if let Some(ratio) = limit.used_ratio() {
            let max = used.entry(limit.name).or_insert(ratio);
            *max = max.max(ratio);
        }
        let model = model.map_or_else(|| ALL.into(), |model| llm.model_label(name, model));
        add(&mut limits, model, limit);
    }
    ProviderStats {
        provider: name.to_owned(),
        queued: view.status.queued,
        oldest: view.status.oldest_wait,
        tenants,
        concurrency: view.status.concurrency.map(|limit| {
            let is_tuned = view.status.auto_tuning.is_some();
            (limit, if is_tuned { "auto_tuned" } else { "fixed" })
        }),
        breaker: BreakerStats {
            state: view.status.breaker.state,
            open_models: view.status.breaker.open_models,
            opened: view.status.breaker.opened,
        },
        holds,
        used: used.into_iter().collect(),
        limits: limits.into_values().collect(),
    }
}

/// Adds a limit. If there is one with this model and dimension, keeps the tighter of the two.
fn add(
    limits: &mut BTreeMap<(Arc<str>, &'static str), LimitStats>,
    model: Arc<str>,
    limit: &LimitView,
) {
    let Some(amount) = limit.per_window() else { return };
    let (source, dimension) = (limit.source, limit.name);
    let bucket = limit.bucket.map(|(remaining, _)| remaining);
    let reported = limit.reported;
    let this = LimitStats { model, dimension, source, limit: amount, bucket, reported };
    let Some(known) = limits.get_mut(&(this.model.clone(), dimension)) else {
        limits.insert((this.model.clone(), dimension), this);
        return;
    };
    let bucket = known.bucket.into_iter().chain(this.bucket).min();
    let reported = known.reported.into_iter().chain(this.reported).min();
    if this.limit < known.limit {
        *known = this;
    }
    (known.bucket, known.reported) = (bucket, reported);
}
