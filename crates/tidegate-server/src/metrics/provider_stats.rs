//! Metrics of providers: queues, tenants, limits and what is left of them.
//!
//! Label values are bounded. Models are the configured ones, `all` or `other`; tenants are those
//! with the ten longest queues, by the hash of their name, and `other`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use tidegate_core::breaker::BreakerState;

use super::scraped::MetricsWriter;

/// Statistics of the queues and limits of a provider.
#[derive(Clone, Debug)]
pub(crate) struct ProviderStats {
    /// Configured name of the provider.
    pub(crate) provider: String,
    /// Number of waiting calls.
    pub(crate) queued: usize,
    /// How long the oldest waiting call has waited.
    pub(crate) oldest: Duration,
    /// Waiting calls by tenant: a bounded number of tenants, by the hash of their name.
    pub(crate) tenants: Vec<(String, usize)>,
    /// Maximum number of concurrent calls, if bounded, and whether it is `fixed` or `auto_tuned`.
    pub(crate) concurrency: Option<(u64, &'static str)>,
    /// Statistics of its circuit breaker.
    pub(crate) breaker: BreakerStats,
    /// Number of models on hold, and the longest remaining hold.
    pub(crate) holds: (usize, Duration),
    /// The used fraction of the limit, by dimension.
    pub(crate) used: Vec<(&'static str, f64)>,
    /// The tightest limit for each model and dimension.
    pub(crate) limits: Vec<LimitStats>,
}

/// Statistics of the circuit breaker of a provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BreakerStats {
    /// State of the provider's breaker, or of the worst of its models'.
    pub(crate) state: BreakerState,
    /// Number of models, counted per key, whose own breaker is not closed.
    pub(crate) open_models: usize,
    /// How often the breaker of the provider or of a model has opened.
    pub(crate) opened: u64,
}

/// Names of the breaker states in metrics and events.
pub(crate) const BREAKER_STATES: [(BreakerState, &str); 3] = [
    (BreakerState::Closed, "closed"),
    (BreakerState::HalfOpen, "half_open"),
    (BreakerState::Open, "open"),
];

/// The tightest limit of a model on one dimension.
#[derive(Clone, Debug)]
pub(crate) struct LimitStats {
    /// A configured name, `all` or `other`.
    pub(crate) model: Arc<str>,
    pub(crate) dimension: &'static str,
    /// Where the limit comes from.
    pub(crate) source: &'static str,
    /// The limit per minute, or per day.
    pub(crate) limit: u64,
    /// Lowest balance of our buckets.
    pub(crate) bucket: Option<i64>,
    /// Lowest remaining amount that the provider last reported.
    pub(crate) reported: Option<u64>,
}

impl MetricsWriter<'_> {
    pub(super) fn providers(&mut self, stats: &[ProviderStats]) -> fmt::Result {
        let provider = "provider";
        self.family(
            "tidegate_llm_queue_length",
            "Calls waiting for a provider",
            MetricType::Gauge,
            stats.iter().map(|f| ([(provider, &*f.provider)], ConstGauge::new(f.queued))),
        )?;
        self.family(
            "tidegate_llm_queue_oldest_seconds",
            "Time that the oldest waiting call has waited",
            MetricType::Gauge,
            stats
                .iter()
                .map(|f| ([(provider, &*f.provider)], ConstGauge::new(f.oldest.as_secs_f64()))),
        )?;
        let tenants = stats.iter().flat_map(|f| f.tenants.iter().map(move |one| (f, one)));
        self.family(
            "tidegate_llm_tenant_queue_length",
            "Calls waiting for a provider, by hash of the tenant: ten longest queues, and other",
            MetricType::Gauge,
            tenants.map(|(f, (tenant, waiting))| {
                let labels = [(provider, &*f.provider), ("tenant", &**tenant)];
                (labels, ConstGauge::new(*waiting))
            }),
        )?;
        self.family(
            "tidegate_llm_concurrency_limit",
            "Current limit on concurrent calls over all keys, models and endpoints, and whether it \
             is fixed or auto_tuned; absent if unlimited",
            MetricType::Gauge,
            stats.iter().filter_map(|f| {
                let (limit, reason) = f.concurrency?;
                let labels = [(provider, &*f.provider), ("reason", reason)];
                Some((labels, ConstGauge::new(limit)))
            }),
        )?;
        self.holds(stats)?;
        self.breakers(stats)?;
        let used = stats.iter().flat_map(|f| f.used.iter().map(move |used| (f, used)));
        self.family(
            "tidegate_llm_quota_used_ratio",
            "Used fraction of a limit, for the account that uses most: the part of a minute's or \
             day's bucket that is spent, or the use of the last minute where calls are paced. At \
             least 1 while calls wait for the limit or are refused because of it, more in debt",
            MetricType::Gauge,
            used.map(|(f, (dimension, ratio))| {
                let labels = [(provider, &*f.provider), ("dimension", *dimension)];
                (labels, ConstGauge::new(*ratio))
            }),
        )?;
        self.limits(stats)
    }

    fn breakers(&mut self, stats: &[ProviderStats]) -> fmt::Result {
        let states = stats.iter().flat_map(|f| BREAKER_STATES.map(|state| (f, state)));
        self.family(
            "tidegate_llm_breaker_state",
            "1 for the current state of the circuit breaker of a provider, or of its worst model",
            MetricType::Gauge,
            states.map(|(f, (state, name))| {
                let labels = [("provider", &*f.provider), ("state", name)];
                (labels, ConstGauge::new(u32::from(f.breaker.state == state)))
            }),
        )?;
        self.family(
            "tidegate_llm_breaker_open_models",
            "Models of a provider, counted per key, whose own circuit breaker is open or half-open",
            MetricType::Gauge,
            stats
                .iter()
                .map(|f| ([("provider", &*f.provider)], ConstGauge::new(f.breaker.open_models))),
        )?;
        self.family(
            "tidegate_llm_breaker_opened",
            "Number of times the circuit breaker of a provider or of one of its models opened",
            MetricType::Counter,
            stats
                .iter()
                .map(|f| ([("provider", &*f.provider)], ConstCounter::new(f.breaker.opened))),
        )
    }

    fn holds(&mut self, stats: &[ProviderStats]) -> fmt::Result {
        self.family(
            "tidegate_llm_holds",
            "Models on hold, counted per account; no calls are sent to them",
            MetricType::Gauge,
            stats.iter().map(|f| ([("provider", &*f.provider)], ConstGauge::new(f.holds.0))),
        )?;
        self.family(
            "tidegate_llm_hold_remaining_seconds",
            "Remaining time of the longest hold",
            MetricType::Gauge,
            stats
                .iter()
                .map(|f| ([("provider", &*f.provider)], ConstGauge::new(f.holds.1.as_secs_f64()))),
        )
    }

    fn limits(&mut self, stats: &[ProviderStats]) -> fmt::Result {
        let all = || stats.iter().flat_map(|f| f.limits.iter().map(move |limit| (f, limit)));
        self.family(
            "tidegate_llm_limit",
            "Tightest current limit per minute (requests_per_day: per day), and its source",
            MetricType::Gauge,
            all().map(|(f, limit)| {
                let [provider, model, dimension] = labels(f, limit);
                let labels = [provider, model, dimension, ("source", limit.source)];
                (labels, ConstGauge::new(limit.limit))
            }),
        )?;
        self.family(
            "tidegate_llm_limit_remaining",
            "Lowest balance of the buckets of a limit; negative in debt",
            MetricType::Gauge,
            all().filter_map(|(f, limit)| Some((labels(f, limit), ConstGauge::new(limit.bucket?)))),
        )?;
        self.family(
            "tidegate_llm_limit_reported_remaining",
            "Lowest remaining amount of a limit that the provider last reported",
            MetricType::Gauge,
            all().filter_map(|(f, limit)| {
                Some((labels(f, limit), ConstGauge::new(limit.reported?)))
            }),
        )
    }
}

fn labels<'f>(stats: &'f ProviderStats, limit: &'f LimitStats) -> [(&'static str, &'f str); 3] {
    let LimitStats { model, dimension, .. } = limit;
    [("provider", &stats.provider), ("model", model), ("dimension", dimension)]
}
