//! The fallback service: the primary service, then the targets.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate::pacer::AcquireError;
use tokio::time::Instant;
use tower_service::Service;

use super::layer::Chain;
use crate::call::ready::CallFuture;
use crate::call::{CallError, OutgoingCall};
use crate::retry::Retryable as _;

/// A service whose failed calls fall back to other providers. Made by a
/// [`FallbackLayer`](super::FallbackLayer).
pub struct Fallback<S, R, T> {
    inner: S,
    chain: Arc<Chain<R, T>>,
}

impl<S, R, T> Fallback<S, R, T> {
    pub(super) const fn new(inner: S, chain: Arc<Chain<R, T>>) -> Self {
        Self { inner, chain }
    }
}

impl<S, R, T> Service<R> for Fallback<S, R, T>
where
    S: Service<R, Response = T, Error = CallError>,
    S::Future: Send + 'static,
    R: OutgoingCall + Clone + Send + 'static,
    T: Send + 'static,
{
    type Response = T;
    type Error = CallError;
    type Future = CallFuture<T>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let chain = self.chain.clone();
        let first = self.inner.call(request.clone());
        Box::pin(async move { chain.run(request, first).await })
    }
}

impl<R: OutgoingCall + Clone, T> Chain<R, T> {
    /// Awaits the response of the primary provider, and tries the targets if it fails.
    pub(super) async fn run(
        &self,
        request: R,
        first: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        self.counters.calls.up();
        let began = Instant::now();
        match first.await {
            Err(error) if may_fall_back(&error) => self.try_targets(request, error, began).await,
            done => done,
        }
    }

    /// Tries the targets in order after the primary provider failed with `first`, until the deadline
    /// of a call that `began` then.
    async fn try_targets(
        &self,
        mut request: R,
        first: CallError,
        mut began: Instant,
    ) -> Result<T, CallError> {
        let end = request.options().deadline.and_then(|span| began.checked_add(span));
        let (mut from, mut failures) = (&self.primary, Vec::new());
        for target in &self.targets {
            let (to, error) = (target.provider(), failures.last().unwrap_or(&first));
            let (now, options) = (Instant::now(), request.options_mut());
            if let Some(end) = end {
                let left = end.saturating_duration_since(now);
                if left.is_zero() {
                    break;
                }
                options.shorten(left);
            }
            // All waits of a call share its maximum.
            if let (CallError::NoPermit { .. }, Some(max_wait)) = (error, &mut options.max_wait) {
                *max_wait = max_wait.saturating_sub(now.saturating_duration_since(began));
            }
            began = now;
            self.counters.turns.up();
            tracing::warn!(%from, %to, class = error.name(), %error, "falling back");
            match target.call(request.clone()).await {
                Ok(response) => {
                    self.counters.rescued.up();
                    return Ok(response);
                }
                Err(error) => {
                    let is_final = !may_fall_back(&error);
                    from = to;
                    failures.push(error);
                    if is_final {
                        break;
                    }
                }
            }
        }
        self.counters.lost.up();
        if let Some(error) = failures.last() {
            let (provider, class) = (&self.primary, error.name());
            tracing::warn!(%provider, last = %from, class, %error, "no fallback succeeded");
        }
        Err(final_error(first, failures))
    }
}

/// Chooses the error when all providers failed: that of the primary, since it is the one that was
/// called. The error of a target is added if a retry may help there but not at the primary. It is
/// also added if the primary was not called because its circuit is open but the target was: then a
/// retry must be paid from the retry budget.
fn final_error(first: CallError, failures: Vec<CallError>) -> CallError {
    let is_relevant = |other: &CallError| {
        if first.is_worth_a_retry() {
            first.is_wait() && !other.is_wait()
        } else {
            other.is_worth_a_retry()
        }
    };
    let other = failures.into_iter().filter(is_relevant).min_by_key(CallError::retry_after);
    match other {
        Some(other) => CallError::FallbackFailed { first: Box::new(first), other: Box::new(other) },
        None => first,
    }
}

/// Returns whether another provider may succeed.
fn may_fall_back(error: &CallError) -> bool {
    match error {
        CallError::InvalidRequest { .. } => true,
        CallError::NoPermit { source, .. } => matches!(
            source,
            AcquireError::TooLong { .. }
                | AcquireError::TimedOut(_)
                | AcquireError::WouldWait
                | AcquireError::QueueFull(_)
                | AcquireError::NeverFits(_)
        ),
        CallError::Exhausted { last, .. } => may_fall_back(last),
        other => other.class().may_fall_back(),
    }
}

impl<S: Clone, R, T> Clone for Fallback<S, R, T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), chain: self.chain.clone() }
    }
}

impl<S: fmt::Debug, R, T> fmt::Debug for Fallback<S, R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, chain } = self;
        f.debug_struct("Fallback").field("inner", inner).field("chain", chain).finish()
    }
}
