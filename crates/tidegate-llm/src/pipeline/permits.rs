//! Permits of commands, and how they end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate::pacer::{AcquireError, Permit};
use tidegate_providers::{Event, Provider, Usage};

use super::key_limits::{Charged, KeyLimits};
use crate::call::{CallError, ResponsePermit};
use crate::rate_limit::{UsageSoFar, name_parts};
use crate::telemetry::{Observer, Stage, StageGuard};

/// Permits granted to one outgoing call. Dropping them releases the concurrency slot and keeps the
/// charges, since the call may have been made.
#[must_use = "dropping permits keeps their charges; settle them after the call"]
pub struct Permits {
    provider: Provider,
    permit: Permit,
    charged: Charged,
    reserved: u64,
    token_wait: Duration,
    _in_flight: StageGuard,
    /// Marks the key as in use.
    _limits: Arc<KeyLimits>,
}

impl Permits {
    pub(super) fn new(
        permit: Permit,
        (limits, charged): (Arc<KeyLimits>, Charged),
        reserved: u64,
        (observer, provider): (&Arc<dyn Observer>, &Provider),
    ) -> Self {
        let parts = permit.wait_parts().iter();
        let of_tokens = parts.filter(|part| charged.counts_tokens(&part.limit));
        let token_wait = of_tokens.map(|part| part.time).sum::<Duration>().min(permit.waited());
        let in_flight = StageGuard::new(observer.clone(), provider.clone(), Stage::InFlight);
        let provider = provider.clone();
        Self {
            provider,
            permit,
            charged,
            reserved,
            token_wait,
            _in_flight: in_flight,
            _limits: limits,
        }
    }

    /// Returns the number of tokens reserved.
    #[must_use]
    pub const fn reserved_tokens(&self) -> u64 {
        self.reserved
    }

    /// Returns how long the command waited in total.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.permit.waited()
    }

    /// Returns the part of the wait caused by token limits; the rest was for requests, the minimum
    /// interval or a slot.
    #[must_use]
    pub const fn token_wait(&self) -> Duration {
        self.token_wait
    }

    /// Returns what the command waited for, by dimension, `min_interval` or `concurrency`, longest
    /// first.
    pub(super) fn waited_for(&self) -> Vec<(&'static str, Duration)> {
        name_parts(self.permit.wait_parts(), |limit| self.charged.wait_reason(limit))
    }

    /// Corrects the charged tokens to the actual usage, for each limit by what it counts: refunds
    /// unused tokens and charges excess ones.
    pub fn settle(self, usage: &Usage) {
        let actual = self.charged.used(usage);
        self.end(&actual);
    }

    /// Ends the permits of a failed call. If nothing was sent, everything is given back. If the
    /// provider refused the call, it counted a request and no tokens, so the estimated tokens are
    /// given back. If its response did not arrive or cannot be read, the provider may have served
    /// it, so they stay charged.
    pub fn failed(mut self, error: &CallError) {
        if !error.was_sent() {
            self.cancel();
        } else if error.may_have_been_served() {
            self.set_refund_on_drop(false);
        } else {
            let actual = self.charged.used(&Usage::default());
            self.end(&actual);
        }
    }

    /// Gives everything back, because the call was not made.
    pub fn cancel(self) {
        let actual = vec![0; self.charged.len()];
        self.end(&actual);
    }

    /// Returns the error of a call whose deadline ended before it was sent.
    pub(super) fn no_permit(&self, source: AcquireError) -> CallError {
        let (provider, parts) = (self.provider.clone(), self.waited_for());
        let limited_by = parts.first().map(|(limit, _)| *limit);
        CallError::NoPermit { provider, source, limited_by, after: None }
    }

    /// Sets whether everything is given back when they are dropped, because the call is not made
    /// yet.
    pub(super) fn set_refund_on_drop(&mut self, is_refunded: bool) {
        self.permit.set_refund_on_drop(is_refunded);
    }

    fn end(mut self, actual: &[u64]) {
        // The store is in-process, so this does not wait.
        if let Err(error) = self.permit.settle_now(actual) {
            tracing::warn!(%error, "settlement failed; keeping the estimated charge");
        }
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits")
            .field("reserved", &self.reserved)
            .field("waited", &self.waited())
            .field("token_wait", &self.token_wait)
            .finish_non_exhaustive()
    }
}

/// Permits of a call whose response has begun. They are settled by the usage that the provider
/// reports, else by the text received.
pub(super) struct RespondingPermits {
    permits: Option<Permits>,
    used: UsageSoFar,
    /// Input tokens, until the provider reports them.
    input: u64,
}

impl RespondingPermits {
    pub(super) fn new(permits: Permits, input: u64) -> Self {
        Self { permits: Some(permits), used: UsageSoFar::default(), input }
    }
}

impl ResponsePermit for RespondingPermits {
    fn record_event(&mut self, event: &Event) {
        match event {
            Event::Usage(usage) => self.used.set_reported(*usage),
            event => event.text().into_iter().for_each(|text| self.used.add_text(text)),
        }
    }

    fn complete(mut self: Box<Self>, usage: Option<Usage>) {
        usage.into_iter().for_each(|usage| self.used.set_final(usage));
    }

    fn interrupted(self: Box<Self>, _error: &CallError, usage: Option<Usage>) {
        self.complete(usage);
    }
}

impl Drop for RespondingPermits {
    /// However the response ends, the provider charges for what it sent.
    fn drop(&mut self) {
        if let Some(permits) = self.permits.take() {
            let usage = self.used.usage(self.input);
            let actual = permits.charged.used(&usage);
            permits.end(&actual);
        }
    }
}
