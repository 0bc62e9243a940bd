//! Deadlines of calls: each layer takes the time that it spent off the deadline, and what makes an
//! attempt ends it there.
//!
//! A retry layer is not needed for that. It does not cut off a response that has begun.

use std::time::Duration;

use tidegate::pacer::AcquireError;
use tidegate_providers::Provider;
use tokio::time::{Instant, timeout};

use super::error::CallError;
use super::{CallOptions, ConnectionFailure};

impl CallOptions {
    /// Takes the time since `began` off the deadline, if there is one.
    ///
    /// # Errors
    /// If nothing is left of it.
    pub(crate) fn spend_since(&mut self, began: Instant) -> Result<(), AcquireError> {
        let Some(deadline) = self.deadline else { return Ok(()) };
        let left = deadline.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(AcquireError::TimedOut(deadline));
        }
        self.shorten(left);
        Ok(())
    }
}

/// Ends an attempt at the deadline of its call, as if the provider had not answered.
pub(crate) async fn end_at<T>(
    deadline: Option<Duration>,
    provider: &Provider,
    attempt: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let Some(left) = deadline else { return attempt.await };
    let timed_out = || CallError::Connection {
        provider: provider.clone(),
        kind: ConnectionFailure::TimedOut,
        source: None,
    };
    timeout(left, attempt).await.unwrap_or_else(|_| Err(timed_out()))
}
