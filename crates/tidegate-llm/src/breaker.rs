//! A circuit breaker: stops calls to a provider that keeps failing.
//!
//! A circuit is closed at first. Consecutive failures open it, as many as
//! [`BreakerSettings`](tidegate_core::breaker::BreakerSettings) says. While it is open, calls fail
//! at once with [`CallError::CircuitOpen`](crate::CallError::CircuitOpen) and nothing is sent.
//! After a pause one call is let through as a trial. If the provider responds, the circuit closes;
//! if the trial fails, the next pause is longer. A trial that is dropped before its deadline makes
//! way for another.
//!
//! - Server errors, overload, timeouts and broken connections count as failures. Rate limits and
//!   bad requests do not, since the provider responded. They do not end a run of failures either,
//!   but a trial with such a response closes the circuit.
//! - Calls that were not sent do not count, such as those that got no permit before their deadline.
//!   The breaker is inside the rate limit, so only calls with a permit pass it; outside, an open
//!   circuit is checked once more, so that calls do not wait for a permit that is of no use.
//! - A call that is dropped at its deadline has timed out, and counts. A call that is dropped earlier
//!   does not count: its caller went away.
//! - An outcome counts only in the epoch in which its call began. A late failure of an old call
//!   says nothing about a provider that has recovered since.
//! - Failures in the middle of a stream are not seen here.

use std::sync::LazyLock;
use std::time::Duration;

use tidegate_core::Time;
use tokio::time::Instant;

mod breakers;
mod circuit;
mod service;

pub(crate) use breakers::Breakers;
#[cfg(test)]
pub(crate) use circuit::Circuit;
#[cfg(test)]
pub(crate) use service::Breaker;
pub(crate) use service::{BreakerLayer, CircuitCheckLayer};

/// Returns the current time of tokio's clock, which tests may have paused.
fn now() -> Time {
    // Start in the middle of the range: the clock of one test runtime may be behind that of
    // another.
    const MIDDLE: Duration = Duration::from_nanos(u64::MAX / 2);
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    let (first, now) = (*FIRST, Instant::now());
    let before = first.saturating_duration_since(now);
    Time::ZERO.after(MIDDLE + now.saturating_duration_since(first) - before)
}
