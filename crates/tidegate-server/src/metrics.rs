//! Prometheus metrics of decisions, the store, and calls to providers.
//!
//! Label values are bounded: limits, providers and models have their configured names, and any
//! other name chosen by a caller is `other`. No label is a key. Decisions are counted on handles
//! that were looked up together with the limit, so no label is hashed on the request path.
//!
//! Values that other components already count (the store, its guard, the queues of the gateway) are
//! read when metrics are scraped.

mod admission;
mod connections;
mod decisions;
mod families;
mod histogram;
mod labels;
mod llm;
mod provider_stats;
mod scraped;
#[cfg(test)]
mod tests;
mod text;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use connections::ClosedConnections;
use decisions::Decisions;
use histogram::Histogram;
use scraped::ScrapedStats;

pub(crate) use admission::AdmissionMetrics;
pub(crate) use connections::ConnectionMetrics;
pub(crate) use decisions::{DecisionOutcome, LimitMetrics, ListenerMetrics};
pub(crate) use llm::{Call, LlmMetrics};
pub(crate) use provider_stats::{BREAKER_STATES, BreakerStats, LimitStats, ProviderStats};
pub(crate) use scraped::{AdmissionStats, PermitStats, SnapshotStats, StoreStats};
pub(crate) use text::Format;

/// All metrics of a server. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    decisions: Decisions,
    connections: ClosedConnections,
    admission: AdmissionMetrics,
    llm: LlmMetrics,
    scraped: Arc<ScrapedStats>,
    permit_waits: Histogram,
    revision: Gauge<u64, AtomicU64>,
    changes: Family<ChangeLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChangeLabels {
    door: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let decisions = Decisions::new(&mut registry);
        let connections = ClosedConnections::new(&mut registry);
        let admission = AdmissionMetrics::new(&mut registry);
        let llm = LlmMetrics::new(&mut registry);
        let (revision, changes) = (Gauge::default(), Family::default());
        registry.register(
            "tidegate_config_revision",
            "Current revision of the configuration",
            revision.clone(),
        );
        registry.register(
            "tidegate_config_changes",
            "Requested configuration changes, by door and outcome",
            changes.clone(),
        );
        let permit_waits = Histogram::new(&histogram::WAITS);
        registry.register(
            "tidegate_permit_wait_seconds",
            "Time spent waiting for permits of /v1/acquire, including zero waits",
            permit_waits.clone(),
        );
        register_process_metrics(&mut registry);
        let scraped = Arc::new(ScrapedStats::default());
        registry.register_collector(Box::new(scraped.clone()));
        let inner = Inner {
            registry,
            decisions,
            connections,
            admission,
            llm,
            scraped,
            permit_waits,
            revision,
            changes,
        };
        Self(Arc::new(inner))
    }
}

fn register_process_metrics(registry: &mut Registry) {
    let build = Family::<BuildLabels, Gauge>::default();
    build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
    registry.register("tidegate_build_info", "Version of the running program", build);
    let started = Gauge::<f64, AtomicU64>::default();
    let now = Duration::from_nanos(tidegate::clock::wall_now().as_nanos());
    started.set(now.as_secs_f64());
    registry.register(
        "process_start_time_seconds",
        "Start time of the server, in seconds since the Unix epoch",
        started,
    );
}

impl Metrics {
    /// Adds configured limits. Handles for any other name count as `other`.
    pub(crate) fn add_limits<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        self.0.decisions.add_limits(names);
    }

    /// Returns the metrics of a listener. Call it once per listener.
    pub(crate) fn listener(&self, name: &'static str) -> ListenerMetrics {
        self.0.decisions.listener(name)
    }

    /// Returns the connection metrics of a listener. Call it once per listener.
    pub(crate) fn connections(&self, door: &'static str) -> ConnectionMetrics {
        self.0.connections.listener(door)
    }

    /// Returns the metrics of admission. Call it once.
    pub(crate) fn admission(&self) -> AdmissionMetrics {
        self.0.admission.clone()
    }

    /// Returns the metrics of calls to providers, which observe such calls.
    pub(crate) fn llm(&self) -> LlmMetrics {
        self.0.llm.clone()
    }

    /// Sets the source of the store's statistics.
    pub(crate) fn set_store_source(&self, source: impl Fn() -> StoreStats + Send + Sync + 'static) {
        self.0.scraped.set_store_source(source);
    }

    /// Sets the source of the statistics of providers, which [`refresh`](Self::refresh) reads.
    pub(crate) fn set_providers_source(
        &self,
        source: impl Fn() -> Pin<Box<dyn Future<Output = Vec<ProviderStats>> + Send>>
        + Send
        + Sync
        + 'static,
    ) {
        self.0.scraped.set_providers_source(source);
    }

    /// Sets the source of admission statistics.
    pub(crate) fn set_admission_source(
        &self,
        source: impl Fn() -> AdmissionStats + Send + Sync + 'static,
    ) {
        self.0.scraped.set_admission_source(source);
    }

    /// Reads the statistics of providers for the next scrape.
    pub(crate) async fn refresh(&self) {
        self.0.scraped.refresh().await;
    }

    /// Sets the source of permit statistics.
    pub(crate) fn set_permits_source(
        &self,
        source: impl Fn() -> PermitStats + Send + Sync + 'static,
    ) {
        self.0.scraped.set_permits_source(source);
    }

    /// Records how long an acquire waited for its permit.
    pub(crate) fn permit_waited(&self, span: Duration) {
        self.0.permit_waits.record_span(span);
    }

    /// Records the current revision of the configuration.
    pub(crate) fn set_revision(&self, revision: u64) {
        self.0.revision.set(revision);
    }

    /// Counts a requested configuration change. `outcome` must be one of a few constants.
    pub(crate) fn count_change(&self, door: &'static str, outcome: &'static str) {
        self.0.changes.get_or_create(&ChangeLabels { door, outcome }).inc();
    }

    /// Renders all metrics as text.
    pub(crate) fn text(&self, format: Format) -> String {
        text::write(&self.0.registry, format)
    }
}
