//! Observers of calls. They never see a prompt or a key.
//!
//! An [`Observer`] is notified of permits, throttles, retries, and calls that wait or are in
//! flight. [`tracing_observer`] emits `tracing` events under stable names; `metrics_observer`
//! (feature `metrics`) records metrics. Labels are provider names, which the program chooses
//! itself, so there are few of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::breaker::BreakerState;
use tidegate_providers::{Class, Provider};

mod counter;
#[cfg(feature = "metrics")]
mod metrics_observer;
mod observers;
mod stage_guard;

pub(crate) use counter::Counter;
#[cfg(feature = "metrics")]
pub use metrics_observer::metrics_observer;
pub(crate) use observers::Observers;
pub use observers::both_observers;
pub(crate) use stage_guard::{Stage, StageGuard};

/// A permit that was granted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Acquired<'a> {
    /// Provider of the call.
    pub provider: &'a Provider,
    /// Key of the limits: a scope, or a key derived by the program. It contains no secret.
    pub limiter_key: &'a str,
    /// Tokens reserved.
    pub estimated_tokens: u64,
    /// Total wait.
    pub wait: Duration,
    /// Part of the wait caused by token limits.
    pub token_wait: Duration,
    /// Part of the wait for a concurrency slot. The rest was for requests: the time beyond the wait
    /// for tokens.
    pub slot_wait: Duration,
    /// What it waited for, by dimension or `concurrency`, longest first; empty if unknown.
    pub waited_for: &'a [(&'static str, Duration)],
    /// What it waited for longest, if it waited: a dimension or `concurrency`.
    pub limited_by: Option<&'static str>,
    /// Limit of requests per minute, if known.
    pub requests_per_minute: Option<u64>,
    /// Limit of tokens per minute, if known.
    pub tokens_per_minute: Option<u64>,
    /// Calls in flight, including this one.
    pub in_flight: u64,
    /// Calls waiting for a permit.
    pub waiting: usize,
}

impl<'a> Acquired<'a> {
    /// Creates a permit that was granted without a wait; all other fields are zero or `None`.
    #[must_use]
    pub const fn new(provider: &'a Provider, limiter_key: &'a str) -> Self {
        Self {
            provider,
            limiter_key,
            estimated_tokens: 0,
            wait: Duration::ZERO,
            token_wait: Duration::ZERO,
            slot_wait: Duration::ZERO,
            waited_for: &[],
            limited_by: None,
            requests_per_minute: None,
            tokens_per_minute: None,
            in_flight: 0,
            waiting: 0,
        }
    }

    /// Part of the wait caused by limits on the rate of tokens or requests.
    #[must_use]
    pub const fn rate_wait(&self) -> Duration {
        self.wait.saturating_sub(self.slot_wait)
    }
}

/// Receives notifications about calls. Methods are called on the path of calls and must not block.
pub trait Observer: Send + Sync + fmt::Debug {
    /// A permit was granted.
    fn acquired(&self, acquired: &Acquired<'_>) {
        let _ = acquired;
    }

    /// Our own limits refused a call: there was no permit in time, the queue was full, or a quota is
    /// exhausted (`quota`, or `requests_per_day` if configured). Nothing was sent. `limited_by` is the
    /// limit to wait for, if known.
    fn refused(&self, provider: &Provider, limited_by: Option<&'static str>) {
        let _ = (provider, limited_by);
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

    /// A provider throttled a call; all calls with this key are held back for `pause`.
    fn throttled(&self, provider: &Provider, limiter_key: &str, pause: Duration) {
        let _ = (provider, limiter_key, pause);
    }

    /// The call rate was reduced for a while at the provider's request.
    fn slowed_down(&self, provider: &Provider, limiter_key: &str) {
        let _ = (provider, limiter_key);
    }

    /// An attempt failed. `attempt` counts from 1; `next_after` is the delay before the next
    /// attempt, if there is one. Not called for attempts that our own limits or an open circuit
    /// breaker refused.
    fn failed(
        &self,
        provider: &Provider,
        class: Class,
        attempt: u32,
        next_after: Option<Duration>,
    ) {
        let _ = (provider, class, attempt, next_after);
    }

    /// A call succeeded after this many retries.
    fn recovered(&self, provider: &Provider, retries: u32) {
        let _ = (provider, retries);
    }

    /// The circuit breaker of a provider, or of one of its models, changed its state.
    fn breaker_changed(&self, provider: &Provider, state: BreakerState) {
        let _ = (provider, state);
    }
}

/// Returns an observer that records permits, waits and throttles as `tracing` events at level
/// debug: `rate_limit.acquire`, `rate_limit.delayed` with the parts of the wait for tokens and for
/// requests, `concurrency.delayed` with the wait for a slot, and `rate_limit.throttled`. It is the
/// default wherever an observer can be set.
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
        if !acquired.slot_wait.is_zero() {
            tracing::debug!(
                name: "concurrency.delayed",
                event = "concurrency.delayed",
                limiter_key = key,
                wait_ms = millis(acquired.slot_wait),
                timestamp,
            );
        }
        if acquired.rate_wait().is_zero() {
            return;
        }
        let token_wait_ms = millis(acquired.token_wait);
        let request_wait_ms = millis(acquired.rate_wait().saturating_sub(acquired.token_wait));
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

/// Returns whole milliseconds, rounded down.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the seconds since the Unix epoch.
fn timestamp() -> f64 {
    Duration::from_nanos(tidegate::clock::wall_now().as_nanos()).as_secs_f64()
}
