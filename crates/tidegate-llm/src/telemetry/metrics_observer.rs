//! An observer for the `metrics` facade.

use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, gauge, histogram};
use tidegate_providers::{Class, Provider};

use super::{Acquired, Observer};

const WAITING: &str = "rate_limit.waiting";
const IN_FLIGHT: &str = "rate_limit.in_flight";

/// Returns an observer that records these metrics, each with the label `provider`:
///
/// | name | kind | |
/// | --- | --- | --- |
/// | `rate_limit.acquisitions` | counter | permits |
/// | `rate_limit.delays` | counter | permits that had to wait |
/// | `rate_limit.wait_time` | histogram | seconds waited, including zero |
/// | `rate_limit.wait_part` | histogram | seconds waited for one limit, also labelled with `limited_by`: `tokens`, `requests`, `concurrency` or another |
/// | `rate_limit.refusals` | counter | calls without a permit in time, or without quota; also labelled with `limited_by` |
/// | `rate_limit.tokens_reserved` | histogram | tokens reserved per permit |
/// | `rate_limit.in_flight`, `rate_limit.waiting` | gauge | calls in that stage |
/// | `rate_limit.hits` | counter | calls throttled by the provider |
/// | `retry.recovered_after` | histogram | retries of calls that succeeded after a retry |
/// | `retry.delay` | histogram | seconds of delay before a retry |
/// | `retry.failures` | counter | calls that failed at the provider after all attempts, also labelled with `class` |
#[must_use]
pub fn metrics_observer() -> Arc<dyn Observer> {
    Arc::new(MetricsObserver)
}

#[derive(Debug)]
struct MetricsObserver;

impl Observer for MetricsObserver {
    fn acquired(&self, acquired: &Acquired<'_>) {
        let provider = name(acquired.provider);
        counter!("rate_limit.acquisitions", "provider" => provider.clone()).increment(1);
        if !acquired.wait.is_zero() {
            counter!("rate_limit.delays", "provider" => provider.clone()).increment(1);
        }
        histogram!("rate_limit.wait_time", "provider" => provider.clone()).record(acquired.wait);
        for (limit, time) in acquired.waited_for {
            let provider = provider.clone();
            histogram!("rate_limit.wait_part", "provider" => provider, "limited_by" => *limit)
                .record(*time);
        }
        histogram!("rate_limit.tokens_reserved", "provider" => provider)
            .record(to_f64(acquired.estimated_tokens));
    }

    fn refused(&self, provider: &Provider, limited_by: Option<&'static str>) {
        let limited_by = limited_by.unwrap_or("unknown");
        counter!("rate_limit.refusals", "provider" => name(provider), "limited_by" => limited_by)
            .increment(1);
    }

    // Gauges are incremented and decremented rather than set, since a provider has several queues.
    fn wait_started(&self, provider: &Provider) {
        gauge!(WAITING, "provider" => name(provider)).increment(1.0);
    }

    fn wait_ended(&self, provider: &Provider) {
        gauge!(WAITING, "provider" => name(provider)).decrement(1.0);
    }

    fn call_started(&self, provider: &Provider) {
        gauge!(IN_FLIGHT, "provider" => name(provider)).increment(1.0);
    }

    fn call_ended(&self, provider: &Provider) {
        gauge!(IN_FLIGHT, "provider" => name(provider)).decrement(1.0);
    }

    fn throttled(&self, provider: &Provider, _limiter_key: &str, _pause: Duration) {
        counter!("rate_limit.hits", "provider" => name(provider)).increment(1);
    }

    fn failed(
        &self,
        provider: &Provider,
        class: Class,
        _attempt: u32,
        next_after: Option<Duration>,
    ) {
        let provider = name(provider);
        match next_after {
            Some(delay) => histogram!("retry.delay", "provider" => provider).record(delay),
            None => {
                let class = class.name();
                counter!("retry.failures", "provider" => provider, "class" => class).increment(1);
            }
        }
    }

    fn recovered(&self, provider: &Provider, retries: u32) {
        histogram!("retry.recovered_after", "provider" => name(provider)).record(retries);
    }
}

fn name(provider: &Provider) -> String {
    provider.as_str().to_owned()
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
fn to_f64(value: u64) -> f64 {
    value as f64
}
