//! Distributes what happens in calls to providers: to metrics, the access log and, for throttles
//! and breaker changes, event watchers.
//!
//! Throttle events are limited to one per provider and second. Otherwise a burst of throttled calls
//! would push all other events out of the watchers' queues.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::breaker::BreakerState;
use tidegate_gateway::{self as gateway, FinishedCall};
use tidegate_llm::telemetry::{Acquired, Observer, tracing_observer};
use tidegate_providers::{Class, Provider};
use tokio::time::Instant;

use crate::access_log::AccessLog;
use crate::events::{Event, Events};
use crate::metrics::{BREAKER_STATES, Call, LlmMetrics};

/// Minimum interval between two throttle events of one provider.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of providers with throttle events. Provider names come from the configuration.
const MAX_PROVIDERS: usize = 1_000;

/// Records calls to providers in metrics, events and the access log.
#[derive(Debug)]
pub(crate) struct CallObserver {
    metrics: LlmMetrics,
    tracing: Arc<dyn Observer>,
    events: Events,
    access_log: AccessLog,
    last_event: Mutex<BTreeMap<Provider, Instant>>,
}

impl CallObserver {
    pub(crate) fn new(metrics: LlmMetrics, events: Events) -> Self {
        Self {
            metrics,
            tracing: tracing_observer(),
            events,
            access_log: AccessLog::default(),
            last_event: Mutex::default(),
        }
    }

    /// Returns the access log, which is initially off.
    pub(crate) const fn access_log(&self) -> &AccessLog {
        &self.access_log
    }

    /// Returns whether a throttle event of this provider may be published now, and if so records
    /// it.
    fn is_due(&self, provider: &Provider, now: Instant) -> bool {
        let mut last_event = self.last_event.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last_event.get_mut(provider) {
            let due = now.saturating_duration_since(*last) >= EVENT_INTERVAL;
            if due {
                *last = now;
            }
            return due;
        }
        let has_room = last_event.len() < MAX_PROVIDERS;
        if has_room {
            last_event.insert(provider.clone(), now);
        }
        has_room
    }
}

impl Observer for CallObserver {
    fn acquired(&self, acquired: &Acquired<'_>) {
        self.metrics.acquired(acquired);
        self.tracing.acquired(acquired);
    }

    fn wait_started(&self, provider: &Provider) {
        self.metrics.wait_started(provider);
    }

    fn wait_ended(&self, provider: &Provider) {
        self.metrics.wait_ended(provider);
    }

    fn call_started(&self, provider: &Provider) {
        self.metrics.call_started(provider);
    }

    fn call_ended(&self, provider: &Provider) {
        self.metrics.call_ended(provider);
    }

    fn throttled(&self, provider: &Provider, limiter_key: &str, pause: Duration) {
        self.metrics.throttled(provider, limiter_key, pause);
        self.tracing.throttled(provider, limiter_key, pause);
        if self.is_due(provider, Instant::now()) {
            let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            let provider = provider.as_str().to_owned();
            self.events.publish(&Event::Throttled { provider, pause_ms });
        }
    }

    fn failed(
        &self,
        provider: &Provider,
        class: Class,
        attempt: u32,
        next_after: Option<Duration>,
    ) {
        self.metrics.failed(provider, class, attempt, next_after);
    }

    fn recovered(&self, provider: &Provider, retries: u32) {
        self.metrics.recovered(provider, retries);
    }

    fn breaker_changed(&self, provider: &Provider, state: BreakerState) {
        let named = BREAKER_STATES.iter().find(|(known, _)| *known == state);
        if let Some((_, state)) = named {
            let provider = provider.as_str().to_owned();
            self.events.publish(&Event::Breaker { provider, state });
        }
    }
}

impl gateway::CallObserver for CallObserver {
    fn finished(&self, call: &FinishedCall<'_>) {
        self.metrics.finished(&Call {
            provider: call.provider.as_str(),
            model: call.model,
            outcome: call.outcome.name(),
            usage: call.usage,
            served_by: call.served_by.unwrap_or(call.provider).as_str(),
            response_failure: call.response_failure,
        });
        self.access_log.write(call);
    }

    fn wants_details(&self) -> bool {
        self.access_log.is_on()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Received;
    use crate::metrics::{Format, Metrics};

    #[tokio::test(start_paused = true)]
    async fn every_throttle_is_counted_but_events_are_limited_to_one_per_second() {
        let (metrics, events) = (Metrics::default(), Events::default());
        let observer = CallObserver::new(metrics.llm(), events.clone());
        let (openai, groq) = (Provider::new("openai"), Provider::new("groq"));
        metrics.llm().set_providers([("openai", [])]);
        let mut watcher = events.watch(None);
        let pause = Duration::from_millis(1_500);
        for _ in 0..100 {
            observer.throttled(&openai, "scope", pause);
        }
        observer.throttled(&groq, "scope", pause);
        tokio::time::advance(EVENT_INTERVAL).await;
        observer.throttled(&openai, "scope", pause);
        for provider in ["openai", "groq", "openai"] {
            let Received::Event(event) = watcher.next().await else { panic!("events missed") };
            assert_eq!(event.data, format!(r#"{{"provider":"{provider}","pause_ms":1500}}"#));
        }
        let more = tokio::time::timeout(EVENT_INTERVAL, watcher.next()).await;
        assert!(more.is_err(), "{more:?}");
        let counted = r#"tidegate_llm_upstream_429_total{provider="openai"} 101"#;
        assert!(metrics.text(Format::Classic).contains(counted));
    }
}
