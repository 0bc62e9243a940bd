//! Trying again: spread out, as the provider asks, within a budget and a deadline.
//!
//! A [`RetryLayer`] wraps a service, and says what holds for its calls:
//!
//! - Delays double from one second up to a minute ([`RetryLayer::base`], [`RetryLayer::cap`]), less a random part. With the
//!   defaults the last attempt is made 91 to 183 seconds after the first: most limits are over by
//!   then.
//! - A delay that the provider asks for is never shortened. A little is added to it, so that those
//!   who were told the same do not come back at the same instant.
//! - All retries to a provider share a [`Budget`], so that an outage is not answered by a storm.
//! - A wait for a provider that is left alone ([`CallError::Open`]) is no retry: nothing was sent. It
//!   takes nothing from the budget, and no attempt for as long as the schedule lasts.
//! - While a retry sleeps it holds no permit: that went with the attempt that failed.
//! - Waits for permits and delays between attempts share one time ([`Call::max_wait`](crate::Call::max_wait)). A delay
//!   of our own that is longer than what is left is shortened to a last attempt.
//! - A provider that cannot be reached is tried again twice, quickly.
//!
//! Only failures that time can heal are retried, and [`CallError::NoPermit`] never is: it is the
//! caller's own limit. An answer that was handed out is not looked after any more; what fails in
//! the middle of a stream is for its reader to judge.
//!
//! [`CallError::NoPermit`]: crate::CallError::NoPermit
//! [`CallError::Open`]: crate::CallError::Open

mod budget;
mod counters;
mod layer;
mod policy;
mod random;
mod retry_state;
mod run;
mod schedule;
mod service;

pub use budget::Budget;
pub(crate) use budget::Budgets;
pub use layer::RetryLayer;
#[cfg(test)]
pub(crate) use random::Random;
pub(crate) use run::Retryable;
#[cfg(test)]
pub(crate) use run::{Reason, TimeBudget, run_within};
