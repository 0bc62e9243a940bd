//! Figures that somebody else keeps, asked for when they are scraped.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tidegate::Stats;
use tidegate::breaker::BreakerState;
use tidegate::guard::{GuardStats, StoreState};

/// How the store stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreFigures {
    /// Its kind, such as `memory` or `redis`.
    pub(crate) store: &'static str,
    /// Of the in-process table, if that is the store.
    pub(crate) table: Option<Stats>,
    /// Of the snapshots of the table, if there are any.
    pub(crate) snapshots: Option<SnapshotFigures>,
    /// Of the guard, if the store can fail.
    pub(crate) guard: Option<(StoreState, GuardStats)>,
}

/// How often the table was to be saved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotFigures {
    /// And was.
    pub(crate) saved: u64,
    /// And was not.
    pub(crate) failed: u64,
}

/// How the queues and quotas of a provider stand.
#[derive(Clone, Debug)]
pub(crate) struct ProviderFigures {
    /// As it is configured.
    pub(crate) provider: String,
    /// Calls that wait.
    pub(crate) queued: usize,
    /// How long the oldest of them has waited.
    pub(crate) oldest: Duration,
    /// Of its breaker.
    pub(crate) breaker: BreakerFigures,
    /// By dimension, the part of the quota that is used.
    pub(crate) used: Vec<(&'static str, f64)>,
}

/// How the breaker of a provider stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BreakerFigures {
    /// Of the provider, or of the worst of its models.
    pub(crate) state: BreakerState,
    /// Models, each with a key, that are left alone by themselves.
    pub(crate) open_models: usize,
    /// How often the provider or a model was left alone.
    pub(crate) opened: u64,
}

/// The states of a breaker, by their names in metrics and events.
pub(crate) const BREAKER_STATES: [(BreakerState, &str); 3] = [
    (BreakerState::Closed, "closed"),
    (BreakerState::HalfOpen, "half_open"),
    (BreakerState::Open, "open"),
];

/// Sources of figures. Each is set once, when there is one.
#[derive(Default)]
pub(super) struct Scraped {
    store: OnceLock<Box<dyn Fn() -> StoreFigures + Send + Sync>>,
    providers: OnceLock<Box<dyn Fn() -> Vec<ProviderFigures> + Send + Sync>>,
}

impl Scraped {
    pub(super) fn ask_store(&self, figures: impl Fn() -> StoreFigures + Send + Sync + 'static) {
        if self.store.set(Box::new(figures)).is_err() {
            tracing::warn!("the figures of a second store are not shown");
        }
    }

    pub(super) fn ask_providers(
        &self,
        figures: impl Fn() -> Vec<ProviderFigures> + Send + Sync + 'static,
    ) {
        if self.providers.set(Box::new(figures)).is_err() {
            tracing::warn!("the figures of a second gateway are not shown");
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
        match self.providers.get() {
            Some(figures) => sheet.providers(&figures()),
            None => Ok(()),
        }
    }
}

/// Where figures are written down.
struct Sheet<'e>(DescriptorEncoder<'e>);

impl Sheet<'_> {
    fn table(&mut self, stats: &Stats) -> fmt::Result {
        self.gauge("tidegate_keys", "Keys in the table", stats.keys)?;
        self.gauge("tidegate_max_keys", "Keys that the table can hold", stats.max_keys)?;
        self.gauge("tidegate_held_keys", "Keys that are held closed", stats.held_keys)?;
        self.gauge("tidegate_leases", "Concurrency slots that are out", stats.leases)?;
        self.gauge(
            "tidegate_store_memory_bytes",
            "Bytes allocated for keys, holds and slots",
            stats.memory_bytes,
        )?;
        self.counter(
            "tidegate_overflow",
            "Decisions on a shared bucket, or denied, because the table was full of indebted keys",
            stats.overflowed,
        )?;
        self.counter(
            "tidegate_evicted_keys",
            "Keys that were forgotten because their bucket was full again",
            stats.evicted,
        )
    }

    fn store(&mut self, figures: &StoreFigures) -> fmt::Result {
        let down = matches!(figures.guard, Some((StoreState::Down, _)));
        self.rows(
            "tidegate_store_degraded",
            "1 while failure rules decide because the store does not answer",
            MetricType::Gauge,
            [([("store", figures.store)], ConstGauge::new(u32::from(down)))],
        )?;
        if let Some(SnapshotFigures { saved, failed }) = figures.snapshots {
            self.rows(
                "tidegate_snapshots",
                "Snapshots of the table that were to be written, by what became of them",
                MetricType::Counter,
                [("saved", saved), ("failed", failed)]
                    .map(|(outcome, count)| ([("outcome", outcome)], ConstCounter::new(count))),
            )?;
        }
        let Some((_, stats)) = figures.guard else { return Ok(()) };
        let by_rule = [("open", stats.open), ("local", stats.local), ("closed", stats.closed)];
        self.rows(
            "tidegate_degraded_decisions",
            "Decisions that failure rules made, by rule",
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
            "Calls that the store did not answer in time, failed, or could not carry out",
            MetricType::Counter,
            failures.map(|(kind, count)| ([("kind", kind)], ConstCounter::new(count))),
        )?;
        self.counter(
            "tidegate_store_downs",
            "How often the store was taken to be down",
            stats.downs,
        )
    }

    fn providers(&mut self, figures: &[ProviderFigures]) -> fmt::Result {
        self.rows(
            "tidegate_llm_queue_length",
            "Calls that wait for a provider",
            MetricType::Gauge,
            figures.iter().map(|f| ([("provider", &*f.provider)], ConstGauge::new(f.queued))),
        )?;
        self.rows(
            "tidegate_llm_queue_oldest_seconds",
            "How long the oldest call that waits has waited",
            MetricType::Gauge,
            figures
                .iter()
                .map(|f| ([("provider", &*f.provider)], ConstGauge::new(f.oldest.as_secs_f64()))),
        )?;
        self.breakers(figures)?;
        let used = figures.iter().flat_map(|f| f.used.iter().map(move |used| (&*f.provider, used)));
        self.rows(
            "tidegate_llm_quota_used_ratio",
            "The part of a quota that is used, by dimension",
            MetricType::Gauge,
            used.map(|(provider, (dimension, ratio))| {
                let labels = [("provider", provider), ("dimension", *dimension)];
                (labels, ConstGauge::new(*ratio))
            }),
        )
    }

    fn breakers(&mut self, figures: &[ProviderFigures]) -> fmt::Result {
        let states = figures.iter().flat_map(|f| BREAKER_STATES.map(|state| (f, state)));
        self.rows(
            "tidegate_llm_breaker_state",
            "1 for the state of the breaker of a provider, or of the worst of its models",
            MetricType::Gauge,
            states.map(|(f, (state, name))| {
                let labels = [("provider", &*f.provider), ("state", name)];
                (labels, ConstGauge::new(u32::from(f.breaker.state == state)))
            }),
        )?;
        self.rows(
            "tidegate_llm_breaker_open_models",
            "Models of a provider, each with a key, that are left alone by themselves, or tried out",
            MetricType::Gauge,
            figures
                .iter()
                .map(|f| ([("provider", &*f.provider)], ConstGauge::new(f.breaker.open_models))),
        )?;
        self.rows(
            "tidegate_llm_breaker_opened",
            "How often the breaker of a provider or of one of its models opened",
            MetricType::Counter,
            figures
                .iter()
                .map(|f| ([("provider", &*f.provider)], ConstCounter::new(f.breaker.opened))),
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

    /// A family: its description once, then a row for each set of labels.
    fn rows<'l, const N: usize, M: EncodeMetric>(
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
