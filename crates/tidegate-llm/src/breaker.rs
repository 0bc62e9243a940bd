//! A circuit breaker: a provider that keeps failing is left alone for a while.
//!
//! A circuit is closed while all is well. So many failures in a row open it ([`BreakerSettings`](tidegate_core::breaker::BreakerSettings)):
//! calls are refused at once with [`CallError::Open`](crate::CallError::Open), and nothing is sent. After
//! a time one call is let through as a trial. If it is answered the circuit closes; if it fails the
//! next trial is later. A trial that is dropped before its time leaves its place to another.
//!
//! - Server errors, overload, time-outs and broken connections count. Rate limits and requests that
//!   are wrong do not: the provider is there, and there are better answers to those. They do not end
//!   a row of failures either, but a trial that gets such an answer closes the circuit.
//! - A call that is dropped at its deadline has timed out, and counts; its wait for a permit is a
//!   part of that time. One that is dropped before says nothing, as its caller has just gone.
//! - An outcome counts only for the epoch in which its call began. A late failure of an old call says
//!   nothing about a provider that has come back since.
//! - What fails in the middle of a stream is not seen here.

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
pub(crate) use service::BreakerLayer;

/// The present, which a test may have paused.
fn now() -> Time {
    // In the middle of all times: a runtime of a test may be behind the one that came first.
    const MIDDLE: Duration = Duration::from_nanos(u64::MAX / 2);
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    let (first, now) = (*FIRST, Instant::now());
    let before = first.saturating_duration_since(now);
    Time::ZERO.after(MIDDLE + now.saturating_duration_since(first) - before)
}
