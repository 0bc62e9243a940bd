//! Statistics that other components keep, read when metrics are scraped.

use std::fmt;
use std::pin::Pin;
use std::sync::OnceLock;

use arc_swap::ArcSwap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tidegate::guard::GuardStats;
use tidegate_memory::Stats;

use super::provider_stats::ProviderStats;

/// Statistics of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreStats {
    /// Kind of the store, such as `memory` or `shared`.
    pub(crate) store: &'static str,
    /// Statistics of the in-process table, if that is the store.
    pub(crate) table: Option<Stats>,
    /// Statistics of its snapshots, if configured.
    pub(crate) snapshots: Option<SnapshotStats>,
    /// Whether the store is up, and the counters of its guard; `None` if the store cannot fail.
    pub(crate) guard: Option<(bool, GuardStats)>,
}

/// Counters of snapshots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotStats {
    /// Snapshots written.
    pub(crate) saved: u64,
    /// Snapshots that failed.
    pub(crate) failed: u64,
}

/// Reads the statistics of providers. Asynchronous, since a shared store may have to be queried.
type ProvidersSource =
    dyn Fn() -> Pin<Box<dyn Future<Output = Vec<ProviderStats>> + Send>> + Send + Sync;

/// Statistics of admission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionStats {
    /// Pending requests: the number counted here or the last one reported, whichever is larger.
    pub(crate) pending: usize,
    /// Number of pending requests above which all requests are rejected.
    pub(crate) threshold: Option<usize>,
}

/// Statistics of the permits of the HTTP API.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PermitStats {
    /// Permits currently held.
    pub(crate) held: usize,
    /// Acquires currently waiting.
    pub(crate) waiting: usize,
    /// Permits released since the start.
    pub(crate) released: u64,
    /// Permits expired since the start.
    pub(crate) expired: u64,
    /// Permits whose slot leases were lost since the start.
    pub(crate) lost: u64,
}

/// The sources of statistics. Each is set at most once.
#[derive(Default)]
pub(super) struct ScrapedStats {
    store: OnceLock<Box<dyn Fn() -> StoreStats + Send + Sync>>,
    providers: OnceLock<Box<ProvidersSource>>,
    /// The statistics of providers last read.
    latest: ArcSwap<Vec<ProviderStats>>,
    admission: OnceLock<Box<dyn Fn() -> AdmissionStats + Send + Sync>>,
    permits: OnceLock<Box<dyn Fn() -> PermitStats + Send + Sync>>,
}

impl ScrapedStats {
    pub(super) fn set_store_source(&self, source: impl Fn() -> StoreStats + Send + Sync + 'static) {
        if self.store.set(Box::new(source)).is_err() {
            tracing::warn!("ignoring metrics of a second store");
        }
    }

    pub(super) fn set_providers_source(
        &self,
        source: impl Fn() -> Pin<Box<dyn Future<Output = Vec<ProviderStats>> + Send>>
        + Send
        + Sync
        + 'static,
    ) {
        if self.providers.set(Box::new(source)).is_err() {
            tracing::warn!("ignoring metrics of a second gateway");
        }
    }

    pub(super) fn set_admission_source(
        &self,
        source: impl Fn() -> AdmissionStats + Send + Sync + 'static,
    ) {
        if self.admission.set(Box::new(source)).is_err() {
            tracing::warn!("ignoring metrics of a second admission controller");
        }
    }

    /// Reads the statistics of providers for the next scrape.
    pub(super) async fn refresh(&self) {
        if let Some(stats) = self.providers.get() {
            self.latest.store(stats().await.into());
        }
    }

    pub(super) fn set_permits_source(
        &self,
        source: impl Fn() -> PermitStats + Send + Sync + 'static,
    ) {
        if self.permits.set(Box::new(source)).is_err() {
            tracing::warn!("ignoring metrics of a second HTTP API");
        }
    }
}

impl fmt::Debug for ScrapedStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScrapedStats").finish_non_exhaustive()
    }
}

impl Collector for ScrapedStats {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = MetricsWriter(encoder);
        if let Some(stats) = self.store.get() {
            let stats = stats();
            if let Some(table) = stats.table {
                writer.table(&table)?;
            }
            writer.store(&stats)?;
        }
        if let Some(stats) = self.admission.get() {
            writer.admission(stats())?;
        }
        if let Some(stats) = self.permits.get() {
            writer.permits(&stats())?;
        }
        match self.providers.get() {
            Some(_) => {
                writer.tokenizer()?;
                writer.providers(&self.latest.load())
            }
            None => Ok(()),
        }
    }
}

/// Writes metrics to an encoder.
pub(super) struct MetricsWriter<'e>(DescriptorEncoder<'e>);

impl MetricsWriter<'_> {
    fn table(&mut self, stats: &Stats) -> fmt::Result {
        self.gauge("tidegate_keys", "Keys in the in-process store", stats.keys)?;
        self.gauge(
            "tidegate_max_keys",
            "Maximum number of keys in the in-process store",
            stats.max_keys,
        )?;
        self.gauge("tidegate_held_keys", "Keys on hold", stats.held_keys)?;
        self.gauge("tidegate_leases", "Leases of concurrency slots", stats.leases)?;
        self.gauge(
            "tidegate_store_memory_bytes",
            "Bytes allocated for keys, holds and leases",
            stats.memory_bytes,
        )?;
        self.counter(
            "tidegate_overflow",
            "Decisions on a shared bucket, or denied, because the store was full of keys in debt",
            stats.overflowed,
        )?;
        self.counter(
            "tidegate_evicted_keys",
            "Keys removed because their bucket was full again",
            stats.evicted,
        )
    }

    fn store(&mut self, stats: &StoreStats) -> fmt::Result {
        let down = matches!(stats.guard, Some((false, _)));
        self.family(
            "tidegate_store_degraded",
            "1 while failure rules decide because the store is unavailable",
            MetricType::Gauge,
            [([("store", stats.store)], ConstGauge::new(u32::from(down)))],
        )?;
        if let Some(SnapshotStats { saved, failed }) = stats.snapshots {
            self.family(
                "tidegate_snapshots",
                "Snapshots of the in-process store, by outcome",
                MetricType::Counter,
                [("saved", saved), ("failed", failed)]
                    .map(|(outcome, count)| ([("outcome", outcome)], ConstCounter::new(count))),
            )?;
        }
        let Some((_, stats)) = stats.guard else { return Ok(()) };
        let by_rule = [("open", stats.open), ("local", stats.local), ("closed", stats.closed)];
        self.family(
            "tidegate_degraded_decisions",
            "Decisions made by failure rules, by rule",
            MetricType::Counter,
            by_rule.map(|(rule, count)| ([("rule", rule)], ConstCounter::new(count))),
        )?;
        let failures = [
            ("timed_out", stats.timed_out),
            ("failed", stats.failed),
            ("rejected", stats.rejected),
        ];
        self.family(
            "tidegate_store_failures",
            "Failed calls to the store, by kind: timed out, failed, or rejected by the store",
            MetricType::Counter,
            failures.map(|(kind, count)| ([("kind", kind)], ConstCounter::new(count))),
        )?;
        self.counter(
            "tidegate_store_downs",
            "Number of times the store was marked down",
            stats.outages,
        )
    }

    fn permits(&mut self, stats: &PermitStats) -> fmt::Result {
        self.gauge("tidegate_permits", "Permits of the HTTP API currently held", stats.held)?;
        self.gauge(
            "tidegate_permit_waiters",
            "Requests waiting for a permit of the HTTP API",
            stats.waiting,
        )?;
        let ended =
            [("released", stats.released), ("expired", stats.expired), ("lost", stats.lost)];
        self.family(
            "tidegate_permits_ended",
            "Permits of the HTTP API that ended, by outcome",
            MetricType::Counter,
            ended.map(|(outcome, count)| ([("outcome", outcome)], ConstCounter::new(count))),
        )
    }

    fn tokenizer(&mut self) -> fmt::Result {
        self.gauge(
            "tidegate_llm_tokenizer_ready",
            "1 since token counts are exact; 0 while they are estimates, because no call needed \
             them yet or the vocabulary is being unpacked",
            usize::from(tidegate_providers::tokens::is_ready()),
        )
    }

    fn admission(&mut self, stats: AdmissionStats) -> fmt::Result {
        let AdmissionStats { pending, threshold } = stats;
        self.gauge(
            "tidegate_admission_pending",
            "Pending requests: counted here or set by PUT /v1/pending, whichever is larger",
            pending,
        )?;
        let Some(threshold) = threshold else { return Ok(()) };
        self.gauge(
            "tidegate_admission_backpressure_threshold",
            "Number of pending requests above which all requests are rejected",
            threshold,
        )
    }

    fn gauge(&mut self, name: &str, help: &str, value: usize) -> fmt::Result {
        let row = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(row)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let row = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(row)
    }

    /// Writes a metric family: its descriptor, then a sample for each set of labels.
    pub(super) fn family<'l, const N: usize, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        rows: impl IntoIterator<Item = ([(&'l str, &'l str); N], M)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        rows.into_iter()
            .try_for_each(|(labels, value)| value.encode(family.encode_family(&labels)?))
    }
}
