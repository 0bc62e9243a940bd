//! Metrics of calls to providers: permits, waits, throttles, retries and outcomes.
//!
//! Each event looks up the metrics of its provider by name. A call takes so long that this cost
//! does not matter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::registry::Registry;
use tidegate_llm::telemetry::{Acquired, Observer};
use tidegate_providers::{Class, Provider, Usage};

use super::families::{
    FailureLabels, Families, ProviderSeries, RequestLabels, TokenLabels, WaitLabels,
};
use super::labels::{MAX_NAMES, OTHER};

/// A finished call to a provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) provider: &'a str,
    /// Model as named by the caller; used as a label only if it is configured.
    pub(crate) model: &'a str,
    /// One of a few constants.
    pub(crate) outcome: &'static str,
    /// Tokens used, if any.
    pub(crate) usage: Option<Usage>,
    /// The provider that processed the tokens.
    pub(crate) served_by: &'a str,
    /// Failure class, if the response failed after it had begun.
    pub(crate) response_failure: Option<Class>,
}

/// The metrics of calls to providers. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct LlmMetrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    families: Families,
    providers: ArcSwap<BTreeMap<Arc<str>, Arc<ProviderSeries>>>,
    other: ProviderSeries,
}

impl LlmMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let families = Families::new(registry);
        let other = families.series(OTHER.into());
        Self(Arc::new(Inner { families, providers: ArcSwap::default(), other }))
    }

    /// Sets the configured providers, each with the models that are counted by name. All others are
    /// `other`. Removed providers keep their metrics, since calls to them may still be in flight.
    pub(crate) fn set_providers<'n, M>(&self, providers: impl IntoIterator<Item = (&'n str, M)>)
    where
        M: IntoIterator<Item = &'n str>,
    {
        let mut known = BTreeMap::clone(&self.0.providers.load());
        for (name, models) in providers {
            let old = known.get(name);
            if old.is_none() && known.len() >= MAX_NAMES {
                continue;
            }
            let provider: Arc<str> = old.map_or_else(|| name.into(), |old| old.provider.clone());
            let mut series = self.0.families.series(provider.clone());
            series.models = old.map(|old| old.models.clone()).unwrap_or_default();
            for model in models {
                if series.models.len() < MAX_NAMES {
                    series.models.insert(model.into());
                }
            }
            known.insert(provider, Arc::new(series));
        }
        self.0.providers.store(Arc::new(known));
    }

    /// Returns the label of a provider's model: its name if configured, otherwise `other`.
    pub(crate) fn model_label(&self, provider: &str, model: &str) -> Arc<str> {
        let providers = self.0.providers.load();
        let mut models = providers.get(provider).into_iter().flat_map(|series| &series.models);
        let known = models.find(|name| name.eq_ignore_ascii_case(model));
        known.cloned().unwrap_or_else(|| OTHER.into())
    }

    /// Counts a finished call. Call it once per call, whatever the outcome.
    pub(crate) fn finished(&self, call: &Call<'_>) {
        let Call { provider, model, outcome, usage, served_by, response_failure } = *call;
        let families = &self.0.families;
        self.with_series(provider, |series| {
            let provider = series.provider.clone();
            let model = series.models.get(model).cloned().unwrap_or_else(|| OTHER.into());
            families.requests.get_or_create(&RequestLabels { provider, model, outcome }).inc();
        });
        self.with_series(served_by, |series| {
            for (kind, source, tokens) in usage.as_ref().map(kinds).into_iter().flatten() {
                let provider = series.provider.clone();
                let labels = TokenLabels { provider, kind, source };
                families.tokens.get_or_create(&labels).inc_by(tokens);
            }
            if let Some(class) = response_failure.map(Class::name) {
                let labels = FailureLabels { provider: series.provider.clone(), class };
                families.failures.get_or_create(&labels).inc();
                families.answer_failures.get_or_create(&labels).inc();
            }
        });
    }

    fn with_series(&self, provider: &str, record: impl FnOnce(&ProviderSeries)) {
        let providers = self.0.providers.load();
        record(providers.get(provider).map_or(&self.0.other, |series| series));
    }
}

/// Returns each token count with its kind and source.
const fn kinds(usage: &Usage) -> [(&'static str, &'static str, u64); 5] {
    let (input, output) = (usage.input_source(), usage.output_source());
    [
        ("input", input, usage.input),
        ("output", output, usage.output),
        ("cache_read", input, usage.cache_read),
        ("cache_write", input, usage.cache_write),
        ("reasoning", output, usage.reasoning),
    ]
}

impl Observer for LlmMetrics {
    fn acquired(&self, acquired: &Acquired<'_>) {
        self.with_series(acquired.provider.as_str(), |series| {
            series.acquisitions.inc();
            if !acquired.wait.is_zero() {
                series.delays.inc();
            }
            series.wait_time.record_span(acquired.wait);
            series.tokens_reserved.record(acquired.estimated_tokens);
            let nothing = [("nothing", Duration::ZERO)];
            let parts = if acquired.wait.is_zero() { &nothing[..] } else { acquired.waited_for };
            for &(limited_by, time) in parts {
                let labels = WaitLabels { provider: series.provider.clone(), limited_by };
                self.0.families.waits.get_or_create(&labels).record_span(time);
            }
        });
    }

    // Gauges are incremented and decremented rather than set, since a provider has several queues.
    fn wait_started(&self, provider: &Provider) {
        self.with_series(provider.as_str(), |series| {
            series.waiting.inc();
        });
    }

    fn wait_ended(&self, provider: &Provider) {
        self.with_series(provider.as_str(), |series| {
            series.waiting.dec();
        });
    }

    fn call_started(&self, provider: &Provider) {
        self.with_series(provider.as_str(), |series| {
            series.in_flight.inc();
        });
    }

    fn call_ended(&self, provider: &Provider) {
        self.with_series(provider.as_str(), |series| {
            series.in_flight.dec();
        });
    }

    fn throttled(&self, provider: &Provider, _limiter_key: &str, _pause: Duration) {
        self.with_series(provider.as_str(), |series| {
            series.throttles.inc();
        });
    }

    fn failed(
        &self,
        provider: &Provider,
        class: Class,
        _attempt: u32,
        next_after: Option<Duration>,
    ) {
        self.with_series(provider.as_str(), |series| match next_after {
            Some(delay) => series.retry_delay.record_span(delay),
            None => {
                let class = class.name();
                let labels = FailureLabels { provider: series.provider.clone(), class };
                self.0.families.failures.get_or_create(&labels).inc();
            }
        });
    }

    fn recovered(&self, provider: &Provider, retries: u32) {
        self.with_series(provider.as_str(), |series| series.retries.record(retries.into()));
    }
}
