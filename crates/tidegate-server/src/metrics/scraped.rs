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

use super::provider_figures::ProviderFigures;

/// Statistics of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreFigures {
    /// Kind of the store, such as `memory` or `shared`.
    pub(crate) store: &'static str,
    /// Statistics of the in-process table, if that is the store.
    pub(crate) table: Option<Stats>,
    /// Statistics of its snapshots, if configured.
    pub(crate) snapshots: Option<SnapshotFigures>,
    /// Whether the store is up, and the counters of its guard; `None` if the store cannot fail.
    pub(crate) guard: Option<(bool, GuardStats)>,
}

/// Counters of snapshots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotFigures {
    /// Snapshots written.
    pub(crate) saved: u64,
    /// Snapshots that failed.
    pub(crate) failed: u64,
}

/// Reads the statistics of providers. Asynchronous, since a shared store may have to be queried.
type AskProviders =
    dyn Fn() -> Pin<Box<dyn Future<Output = Vec<ProviderFigures>> + Send>> + Send + Sync;

/// Statistics of admission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionFigures {
    /// Pending requests: the number counted here or the last one reported, whichever is larger.
    pub(crate) pending: usize,
    /// All requests are rejected while more than this are pending.
    pub(crate) threshold: Option<usize>,
}

/// Statistics of the permits of the HTTP API.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PermitFigures {
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
pub(super) struct Scraped {
    store: OnceLock<Box<dyn Fn() -> StoreFigures + Send + Sync>>,
    providers: OnceLock<Box<AskProviders>>,
    /// The statistics of providers last read.
    latest: ArcSwap<Vec<ProviderFigures>>,
    admission: OnceLock<Box<dyn Fn() -> AdmissionFigures + Send + Sync>>,
    permits: OnceLock<Box<dyn Fn() -> PermitFigures + Send + Sync>>,
}

impl Scraped {
    pub(super) fn ask_store(&self, figures: impl Fn() -> StoreFigures + Send + Sync + 'static) {
        if self.store.set(Box::new(figures)).is_err() {
            tracing::warn!("ignoring metrics of a second store");
        }
    }

    pub(super) fn ask_providers(
        &self,
        figures: impl Fn() -> Pin<Box<dyn Future<Output = Vec<ProviderFigures>> + Send>>
        + Send
        + Sync
        + 'static,
    ) {
        if self.providers.set(Box::new(figures)).is_err() {
            tracing::warn!("ignoring metrics of a second gateway");
        }
    }

    pub(super) fn ask_admission(
        &self,
        figures: impl Fn() -> AdmissionFigures + Send + Sync + 'static,
    ) {
        if self.admission.set(Box::new(figures)).is_err() {
            tracing::warn!("ignoring metrics of a second admission");
        }
    }

    /// Reads the statistics of providers for the next scrape.
    pub(super) async fn refresh(&self) {
        if let Some(figures) = self.providers.get() {
            self.latest.store(figures().await.into());
        }
    }

    pub(super) fn ask_permits(&self, figures: impl Fn() -> PermitFigures + Send + Sync + 'static) {
        if self.permits.set(Box::new(figures)).is_err() {
            tracing::warn!("ignoring metrics of a second HTTP API");
        }
    }
}

impl fmt::Debug for Scraped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scraped").finish_non_exhaustive()
    }
}

impl Collector for Scraped {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut sheet = Sheet(encoder);
        if let Some(figures) = self.store.get() {
            let figures = figures();
            if let Some(table) = figures.table {
                sheet.table(&table)?;
            }
            sheet.store(&figures)?;
        }
        if let Some(figures) = self.admission.get() {
            sheet.admission(figures())?;
        }
        if let Some(figures) = self.permits.get() {
            sheet.permits(&figures())?;
        }
        match self.providers.get() {
            Some(_) => sheet.providers(&self.latest.load()),
            None => Ok(()),
        }
    }
}

/// Writes metrics to an encoder.
pub(super) struct Sheet<'e>(DescriptorEncoder<'e>);

impl Sheet<'_> {
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
            "Decisions made on a shared bucket, or denied, because the store was full of keys in debt",
            stats.overflowed,
        )?;
        self.counter(
            "tidegate_evicted_keys",
            "Keys removed because their bucket was full again",
            stats.evicted,
        )
    }

    fn store(&mut self, figures: &StoreFigures) -> fmt::Result {
        let down = matches!(figures.guard, Some((false, _)));
        self.rows(
            "tidegate_store_degraded",
            "1 while failure rules decide because the store is unavailable",
            MetricType::Gauge,
            [([("store", figures.store)], ConstGauge::new(u32::from(down)))],
        )?;
        if let Some(SnapshotFigures { saved, failed }) = figures.snapshots {
            self.rows(
                "tidegate_snapshots",
                "Snapshots of the in-process store, by outcome",
                MetricType::Counter,
                [("saved", saved), ("failed", failed)]
                    .map(|(outcome, count)| ([("outcome", outcome)], ConstCounter::new(count))),
            )?;
        }
        let Some((_, stats)) = figures.guard else { return Ok(()) };
        let by_rule = [("open", stats.open), ("local", stats.local), ("closed", stats.closed)];
        self.rows(
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
        self.rows(
            "tidegate_store_failures",
            "Failed calls to the store, by kind: timed out, failed, or rejected by the store",
            MetricType::Counter,
            failures.map(|(kind, count)| ([("kind", kind)], ConstCounter::new(count))),
        )?;
        self.counter(
            "tidegate_store_downs",
            "Number of times the store was marked down",
            stats.downs,
        )
    }

    fn permits(&mut self, figures: &PermitFigures) -> fmt::Result {
        self.gauge("tidegate_permits", "Permits of the HTTP API currently held", figures.held)?;
        self.gauge(
            "tidegate_permit_waiters",
            "Requests waiting for a permit of the HTTP API",
            figures.waiting,
        )?;
        let ended =
            [("released", figures.released), ("expired", figures.expired), ("lost", figures.lost)];
        self.rows(
            "tidegate_permits_ended",
            "Permits of the HTTP API that ended, by outcome",
            MetricType::Counter,
            ended.map(|(outcome, count)| ([("outcome", outcome)], ConstCounter::new(count))),
        )
    }

    fn admission(&mut self, figures: AdmissionFigures) -> fmt::Result {
        let AdmissionFigures { pending, threshold } = figures;
        self.gauge(
            "tidegate_admission_pending",
            "Pending requests: the number counted here or last set by PUT /v1/pending, whichever is larger",
            pending,
        )?;
        let Some(threshold) = threshold else { return Ok(()) };
        self.gauge(
            "tidegate_admission_backpressure_threshold",
            "All requests are rejected while more than this are pending",
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
    pub(super) fn rows<'l, const N: usize, M: EncodeMetric>(
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
