//! The layer and its service.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_providers::Provider;
use tokio::time::timeout;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument as _;

use super::budget::Budget;
use super::policy::Policy;
use super::run::{Attempt, TimeBudget, run_within};
use super::stats::Stats;
use crate::call::ready::{self, Answering};
use crate::call::{Broken, CallError, Outgoing};

/// Makes services that try again.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?
/// #     .block_on(async {
/// use tidegate_llm::retry::{Policy, RetryLayer};
/// use tidegate_llm::{Call, CallError};
/// use tidegate_llm::Chat;
/// use tower::{Layer as _, ServiceExt as _, service_fn};
///
/// let layer = RetryLayer::new(Policy::new("openai"));
/// let model = layer.layer(service_fn(|_: Call| async { Ok::<_, CallError>("hello") }));
/// assert_eq!(model.oneshot(Call::new(Chat::user("hi"))).await?, "hello");
/// assert_eq!(layer.stats().attempts, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RetryLayer {
    policy: Arc<Policy>,
}

impl RetryLayer {
    /// A layer under a policy, which is told to the log.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        let retries = policy.schedule.attempts().saturating_sub(1);
        tracing::info!("{} client configured with max_retries={retries}", policy.provider);
        Self { policy: Arc::new(policy) }
    }

    /// The same for calls that have a budget of their own. What comes of them counts here as well.
    #[must_use]
    pub fn with_budget(&self, budget: &Budget) -> Self {
        Self { policy: Arc::new(Policy::clone(&self.policy).budget(budget)) }
    }

    /// What came of the calls through all services of this layer.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.policy.stats()
    }

    /// Makes attempts of a call until one is answered, or nothing more is to be tried.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub async fn run<R, T, A>(
        &self,
        request: R,
        mut attempt: impl FnMut(R) -> A,
    ) -> Result<T, CallError>
    where
        R: Outgoing + Clone,
        A: Future<Output = Result<T, CallError>>,
    {
        let policy = &self.policy;
        let deadline = request.terms().deadline.or(policy.deadline);
        let time = TimeBudget { deadline, max_wait: request.terms().max_wait };
        let provider = &policy.provider;
        let attempt = move |Attempt { left, max_wait, .. }: Attempt| {
            let mut request = request.clone();
            let terms = request.terms_mut();
            terms.max_wait = max_wait;
            if let Some(left) = left {
                terms.shorten(left);
            }
            within(left, provider, attempt(request))
        };
        let span = tracing::debug_span!("llm.call", function = &*policy.function);
        Ok(run_within(policy, time, attempt).instrument(span).await?)
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry { inner, policy: self.policy.clone() }
    }
}

/// A service that tries again. Made by a [`RetryLayer`].
///
/// Waits for permits and delays between attempts share the time that a call may wait
/// ([`Terms::max_wait`](crate::Terms)): what is left of it, and of a deadline, is the longest wait for
/// the next permit. An attempt that is still under way at the deadline is broken off, as one that was
/// not answered in time.
#[derive(Clone, Debug)]
pub struct Retry<S> {
    inner: S,
    policy: Arc<Policy>,
}

impl<S> Retry<S> {
    /// What came of the calls through all services of the layer.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.policy.stats()
    }
}

impl<S, R> Service<R> for Retry<S>
where
    S: Service<R, Error = CallError> + Clone + Send + 'static,
    S::Response: Send,
    S::Future: Send,
    R: Outgoing + Clone + Send + 'static,
{
    type Response = S::Response;
    type Error = CallError;
    type Future = Answering<S::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The first attempt goes to the service that is ready. Later ones wait for readiness
        // themselves, after the sleep: nothing is held in the meantime.
        let mut first = Some(ready::take_ready(&mut self.inner));
        let (inner, layer) = (self.inner.clone(), RetryLayer { policy: self.policy.clone() });
        let attempt = move |request| {
            let (first, other) = (first.take(), inner.clone());
            async move {
                match first {
                    Some(mut ready) => ready.call(request).await,
                    None => ready::call(other, request).await,
                }
            }
        };
        Box::pin(async move { layer.run(request, attempt).await })
    }
}

/// Breaks off what is not answered in what is left.
async fn within<T>(
    left: Option<Duration>,
    provider: &Provider,
    answer: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let answer = pin!(answer);
    let Some(left) = left else { return answer.await };
    timeout(left, answer).await.unwrap_or_else(|late| {
        let (provider, source) = (provider.clone(), Some(late.into()));
        Err(CallError::Connection { provider, broken: Broken::TimedOut, source })
    })
}
