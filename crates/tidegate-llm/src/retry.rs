//! Retries with jitter, server-requested delays, a shared budget and a deadline.
//!
//! A [`RetryLayer`] wraps a service and configures its retries:
//!
//! - Delays double from one second up to a minute ([`RetryLayer::base_delay`],
//!   [`RetryLayer::max_delay`]), minus random jitter. With the defaults the last attempt starts 91
//!   to 183 seconds after the first, when most rate limits are over.
//! - A delay requested by the provider is never shortened. Jitter is added to it, so that callers
//!   that got the same delay do not all come back at the same instant.
//! - All retries to a provider share a budget ([`RetryLayer::budget`]), so that an outage does not
//!   cause a retry storm.
//! - Waiting for an open circuit breaker ([`CallError::CircuitOpen`]) is not a retry: nothing was
//!   sent. It takes nothing from the budget, and does not count as an attempt for as long as the
//!   delays of the schedule last.
//! - A call holds no permit while it waits for a retry: the permit ended with the failed attempt.
//! - Waits for permits and delays between attempts share one limit
//!   ([`Call::max_wait`](crate::Call::max_wait)). A delay of our own that exceeds the remaining
//!   time is shortened for one last attempt.
//! - A provider that cannot be reached is retried twice, with shorter delays.
//!
//! Only failures that may pass with time are retried. [`CallError::NoPermit`] and
//! [`CallError::QuotaExhausted`] never are, and are no attempts: nothing was sent, and the time that
//! the caller allows is up, or too short for the wait. A deadline that ends while a call waits for a
//! permit is such a [`CallError::NoPermit`], not a timeout of the provider. A response that was handed out is no longer watched; a failure in the middle
//! of a stream is for its reader to handle.
//!
//! [`CallError::NoPermit`]: crate::CallError::NoPermit
//! [`CallError::QuotaExhausted`]: crate::CallError::QuotaExhausted
//! [`CallError::CircuitOpen`]: crate::CallError::CircuitOpen

mod any_error;
mod budget;
mod counters;
mod layer;
mod policy;
mod random;
mod retry_state;
mod run;
mod schedule;
mod service;

pub(crate) use budget::{Budget, Budgets};
pub use layer::RetryLayer;
#[cfg(test)]
pub(crate) use random::Random;
pub(crate) use run::Retryable;
#[cfg(test)]
pub(crate) use run::{Reason, TimeBudget, run_within};
