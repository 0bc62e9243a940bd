//! What happens, told to whoever watches: never a prompt, never a key.
//!
//! An [`Observer`] is told of each permit, throttle and retry, and of calls that wait and are made. [`tracing_observer`] writes them as
//! events of `tracing` under the names that dashboards know; `metrics_observer` (feature `metrics`) counts
//! them. Labels are providers, which a program names itself, so there are few of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::breaker::BreakerState;
use tidegate_providers::{Class, Provider};

mod counter;
#[cfg(feature = "metrics")]
mod metrics_observer;
mod stage_guard;

pub(crate) use counter::Counter;
#[cfg(feature = "metrics")]
pub use metrics_observer::metrics_observer;
pub(crate) use stage_guard::{Stage, StageGuard};

/// A permit that was given.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Acquired<'a> {
    /// The provider.
    pub provider: &'a Provider,
    /// Whose limits they were: a scope, or the key that a program made. No secret is in it.
    pub limiter_key: &'a str,
    /// Tokens that were reserved.
    pub estimated_tokens: u64,
    /// How long the call waited.
    pub wait: Duration,
    /// The part of it that was for tokens; the rest was for requests and concurrency.
    pub token_wait: Duration,
    /// What made it wait longest, if it waited: a dimension or `concurrency`.
    pub limited_by: Option<&'static str>,
    /// Requests per minute that are allowed, if that is known.
    pub requests_per_minute: Option<u64>,
    /// Tokens per minute that are allowed, if that is known.
    pub tokens_per_minute: Option<u64>,
    /// Calls under way with this one, and calls that wait.
    pub in_flight: u64,
    /// Calls that wait.
    pub waiting: usize,
}

impl<'a> Acquired<'a> {
    /// A permit that was given at once, of which nothing is known.
    #[must_use]
    pub const fn new(provider: &'a Provider, limiter_key: &'a str) -> Self {
        Self {
            provider,
            limiter_key,
            estimated_tokens: 0,
            wait: Duration::ZERO,
            token_wait: Duration::ZERO,
            limited_by: None,
            requests_per_minute: None,
            tokens_per_minute: None,
            in_flight: 0,
            waiting: 0,
        }
    }
}

/// Somebody who is told what happens. Called on the path of calls: it must not wait.
pub trait Observer: Send + Sync + fmt::Debug {
    /// A permit was given.
    fn acquired(&self, acquired: &Acquired<'_>) {
        let _ = acquired;
    }

    /// A call started to wait for a permit.
    fn wait_started(&self, provider: &Provider) {
        let _ = provider;
    }

    /// A call no longer waits for a permit: it got one, failed or was dropped.
    fn wait_ended(&self, provider: &Provider) {
        let _ = provider;
    }

    /// A call with a permit is in flight.
    fn call_started(&self, provider: &Provider) {
        let _ = provider;
    }

    /// A call is no longer in flight: its response ended, or it failed or was dropped.
    fn call_ended(&self, provider: &Provider) {
        let _ = provider;
    }

    /// A provider throttled a call; what shares the key is closed for so long.
    fn throttled(&self, provider: &Provider, limiter_key: &str, pause: Duration) {
        let _ = (provider, limiter_key, pause);
    }

    /// Calls leave more slowly for a while, since the provider complained.
    fn slowed_down(&self, provider: &Provider, limiter_key: &str) {
        let _ = (provider, limiter_key);
    }

    /// An attempt failed: its number, from one, and how long until the next one, if there is one.
    fn failed(
        &self,
        provider: &Provider,
        class: Class,
        attempt: u32,
        next_after: Option<Duration>,
    ) {
        let _ = (provider, class, attempt, next_after);
    }

    /// A call succeeded after so many retries.
    fn recovered(&self, provider: &Provider, retries: u32) {
        let _ = (provider, retries);
    }

    /// The breaker of a provider, or of one of its models, is in another state.
    fn breaker_changed(&self, provider: &Provider, state: BreakerState) {
        let _ = (provider, state);
    }
}

/// Returns an observer that records permits, waits and throttles as `tracing` events at level debug.
/// It is the default wherever an observer can be set.
#[must_use]
pub fn tracing_observer() -> Arc<dyn Observer> {
    Arc::new(TracingObserver)
}

#[derive(Debug)]
struct TracingObserver;

impl Observer for TracingObserver {
    fn acquired(&self, acquired: &Acquired<'_>) {
        let (key, tokens) = (acquired.limiter_key, acquired.estimated_tokens);
        let timestamp = timestamp();
        tracing::debug!(
            name: "rate_limit.acquire",
            event = "rate_limit.acquire",
            limiter_key = key,
            estimated_tokens = tokens,
            timestamp,
        );
        if acquired.wait.is_zero() {
            return;
        }
        let token_wait_ms = millis(acquired.token_wait);
        let request_wait_ms = millis(acquired.wait.saturating_sub(acquired.token_wait));
        tracing::debug!(
            name: "rate_limit.delayed",
            event = "rate_limit.delayed",
            limiter_key = key,
            wait_ms = token_wait_ms + request_wait_ms,
            request_wait_ms,
            token_wait_ms,
            estimated_tokens = tokens,
            constraint.rpm = acquired.requests_per_minute,
            constraint.tpm = acquired.tokens_per_minute,
            timestamp,
        );
    }

    fn throttled(&self, _provider: &Provider, limiter_key: &str, pause: Duration) {
        tracing::debug!(
            name: "rate_limit.throttled",
            event = "rate_limit.throttled",
            limiter_key,
            pause_ms = millis(pause),
            timestamp = timestamp(),
        );
    }
}

/// Whole milliseconds, cut off.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Seconds since 1970.
fn timestamp() -> f64 {
    Duration::from_nanos(tidegate::clock::wall_now().as_nanos()).as_secs_f64()
}
