//! Metric families of calls to providers, and the handles of one provider.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

use super::histogram::{self, Histogram};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProviderLabels {
    pub(super) provider: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WaitLabels {
    pub(super) provider: Arc<str>,
    pub(super) limited_by: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FailureLabels {
    pub(super) provider: Arc<str>,
    pub(super) class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub(super) provider: Arc<str>,
    pub(super) model: Arc<str>,
    pub(super) outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TokenLabels {
    pub(super) provider: Arc<str>,
    pub(super) kind: &'static str,
    pub(super) source: &'static str,
}

type Counters<S> = Family<S, Counter>;
type Histograms<S> = Family<S, Histogram, fn() -> Histogram>;

#[derive(Debug)]
pub(super) struct Families {
    pub(super) acquisitions: Counters<ProviderLabels>,
    pub(super) delays: Counters<ProviderLabels>,
    pub(super) wait_time: Histograms<ProviderLabels>,
    pub(super) tokens_reserved: Histograms<ProviderLabels>,
    pub(super) waits: Histograms<WaitLabels>,
    pub(super) throttles: Counters<ProviderLabels>,
    pub(super) waiting: Family<ProviderLabels, Gauge>,
    pub(super) in_flight: Family<ProviderLabels, Gauge>,
    pub(super) retry_delay: Histograms<ProviderLabels>,
    pub(super) retries: Histograms<ProviderLabels>,
    pub(super) failures: Counters<FailureLabels>,
    pub(super) answer_failures: Counters<FailureLabels>,
    pub(super) requests: Counters<RequestLabels>,
    pub(super) tokens: Counters<TokenLabels>,
}

/// The metrics of one provider, and the model names that may be used as labels.
#[derive(Clone, Debug)]
pub(super) struct ProviderSeries {
    pub(super) provider: Arc<str>,
    pub(super) models: BTreeSet<Arc<str>>,
    pub(super) acquisitions: Counter,
    pub(super) delays: Counter,
    pub(super) wait_time: Histogram,
    pub(super) tokens_reserved: Histogram,
    pub(super) throttles: Counter,
    pub(super) waiting: Gauge,
    pub(super) in_flight: Gauge,
    pub(super) retry_delay: Histogram,
    pub(super) retries: Histogram,
}

impl Families {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let mut add = Registrar(registry);
        Self {
            acquisitions: add.counters("rate_limit_acquisitions", "Permits granted"),
            delays: add.counters("rate_limit_delays", "Permits granted after a wait"),
            wait_time: add.waits(
                "rate_limit_wait_time_seconds",
                "Time spent waiting for permits, including zero waits",
            ),
            tokens_reserved: add.histograms(
                "rate_limit_tokens_reserved",
                "Tokens reserved per call",
                || Histogram::new(&histogram::TOKENS),
            ),
            waits: add.waits(
                "llm_wait_seconds",
                "Time that calls waited for each limit; a call that waited for two counts in both",
            ),
            throttles: add.counters("llm_upstream_429", "Calls throttled by the provider"),
            waiting: add.family("llm_waiting", "Calls waiting for a permit"),
            in_flight: add
                .family("llm_in_flight", "Calls with a permit and no complete response yet"),
            retry_delay: add.waits("llm_retry_delay_seconds", "Delay before a retry"),
            retries: add.histograms(
                "llm_retries_until_success",
                "Retries of calls that eventually succeeded",
                || Histogram::new(&histogram::RETRIES),
            ),
            failures: add.counters(
                "llm_failures",
                "Calls that failed at a provider after all retries, by class of the last failure",
            ),
            answer_failures: add.counters(
                "llm_answer_failures",
                "Responses that failed after they had begun, by class; also in llm_failures",
            ),
            requests: add.counters("llm_requests", "Calls, by outcome"),
            tokens: add.counters(
                "llm_tokens",
                "Tokens used, as reported by the provider or estimated here; cache_read and \
                 cache_write are parts of input, reasoning is part of output",
            ),
        }
    }

    pub(super) fn series(&self, provider: Arc<str>) -> ProviderSeries {
        let labels = ProviderLabels { provider: provider.clone() };
        ProviderSeries {
            provider,
            models: BTreeSet::new(),
            acquisitions: self.acquisitions.get_or_create_owned(&labels),
            delays: self.delays.get_or_create_owned(&labels),
            wait_time: self.wait_time.get_or_create_owned(&labels),
            tokens_reserved: self.tokens_reserved.get_or_create_owned(&labels),
            throttles: self.throttles.get_or_create_owned(&labels),
            waiting: self.waiting.get_or_create_owned(&labels),
            in_flight: self.in_flight.get_or_create_owned(&labels),
            retry_delay: self.retry_delay.get_or_create_owned(&labels),
            retries: self.retries.get_or_create_owned(&labels),
        }
    }
}

/// Registers metric families with the prefix `tidegate_`.
struct Registrar<'r>(&'r mut Registry);

impl Registrar<'_> {
    fn family<F: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> F {
        self.register(name, help, F::default())
    }

    fn counters<S>(&mut self, name: &str, help: &str) -> Counters<S>
    where
        Counters<S>: Metric + Clone + Default,
    {
        self.family(name, help)
    }

    fn waits<S>(&mut self, name: &str, help: &str) -> Histograms<S>
    where
        Histograms<S>: Metric + Clone,
        S: Clone + Eq + Hash,
    {
        self.histograms(name, help, || Histogram::new(&histogram::WAITS))
    }

    fn histograms<S>(&mut self, name: &str, help: &str, new: fn() -> Histogram) -> Histograms<S>
    where
        Histograms<S>: Metric + Clone,
        S: Clone + Eq + Hash,
    {
        self.register(name, help, Family::new_with_constructor(new))
    }

    fn register<F: Metric + Clone>(&mut self, name: &str, help: &str, family: F) -> F {
        self.0.register(format!("tidegate_{name}"), help, family.clone());
        family
    }
}
