//! The retry layer.

use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use tidegate_providers::Provider;
use tokio::time::sleep;
use tower_layer::Layer;
use tracing::Instrument as _;

use super::budget::Budget;
use super::policy::Policy;
use super::random::Random;
use super::run::{Attempt, TimeBudget, run_within};
use super::service::Retry;
use crate::call::{CallError, ConnectionFailure, OutgoingCall, PermitWait};
use crate::rate_limit::Account;
use crate::telemetry::Observer;

/// Wraps services so that failed calls are retried. Clones share the counts and the budget.
///
/// The delay before retry `i` is [`base_delay`](Self::base_delay) doubled `i - 1` times, at most
/// [`max_delay`](Self::max_delay), minus random jitter of up to
/// [`jitter_percent`](Self::jitter_percent).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?
/// #     .block_on(async {
/// use std::time::Duration;
/// use tidegate_llm::retry::RetryLayer;
/// use tidegate_llm::{Call, CallError};
/// use tidegate_llm::Chat;
/// use tower::{Layer as _, ServiceExt as _, service_fn};
///
/// let layer = RetryLayer::new("openai")
///     .max_retries(4)
///     .deadline(Duration::from_secs(90))
///     .function("summarise");
/// assert_eq!(*layer.window().end(), Duration::from_secs(15));
/// let model = layer.layer(service_fn(|_: Call| async { Ok::<_, CallError>("hello") }));
/// assert_eq!(model.oneshot(Call::new(Chat::user("hi"))).await?, "hello");
/// assert_eq!(layer.attempts(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RetryLayer {
    pub(crate) policy: Arc<Policy>,
}

impl RetryLayer {
    /// Creates a layer for calls to a provider, with defaults and its own budget: eight retries
    /// after the first attempt, with delays from 1 s to 60 s minus up to 50 % jitter.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_llm::retry::RetryLayer;
    ///
    /// let window = RetryLayer::new("openai").window();
    /// assert_eq!(*window.start(), Duration::from_millis(91_500));
    /// assert_eq!(*window.end(), Duration::from_secs(183));
    ///
    /// let short = RetryLayer::new("openai").max_retries(3).base_delay(Duration::from_millis(500));
    /// assert_eq!(*short.jitter_percent(0).window().end(), Duration::from_millis(500 + 1_000 + 2_000));
    /// ```
    pub fn new(provider: impl Into<Provider>) -> Self {
        Self { policy: Arc::new(Policy::new(provider.into())) }
    }

    /// Sets the maximum number of retries after the first attempt. Default: 8, so nine attempts.
    pub fn max_retries(self, retries: u32) -> Self {
        self.with(|policy| policy.schedule = policy.schedule.max_retries(retries))
    }

    /// Sets the delay before the first retry. Default: 1 s.
    pub fn base_delay(self, span: Duration) -> Self {
        self.with(|policy| policy.schedule = policy.schedule.base_delay(span))
    }

    /// Sets the maximum delay, unless the provider asks for a longer one. Default: 60 s.
    pub fn max_delay(self, span: Duration) -> Self {
        self.with(|policy| policy.schedule = policy.schedule.max_delay(span))
    }

    /// Sets the random part of a delay in percent, up to 100. Default: 50. With 0, delays are
    /// exact, and workers that fail together come back together.
    pub fn jitter_percent(self, percent: u8) -> Self {
        self.with(|policy| policy.schedule = policy.schedule.jitter_percent(percent))
    }

    /// Limits log lines about attempts to 60 per 10 seconds, over all clones. Meant for servers.
    /// Default: every failed attempt is logged.
    pub fn bounded_log(self) -> Self {
        self.with(|policy| policy.log = Some(Arc::default()))
    }

    /// Sets the name of the call in the log. Default: the provider's name.
    pub fn function(self, name: &str) -> Self {
        self.with(|policy| policy.function = name.into())
    }

    /// Sets the maximum delay accepted from the provider. If it asks for more, the call fails at
    /// once. Default: ten minutes.
    pub fn max_server_delay(self, span: Duration) -> Self {
        self.with(|policy| policy.max_server_delay = span)
    }

    /// Sets the account whose permits attempts wait for. All layers with this account share its
    /// retry budget. The account holds back all its calls after a rate limit, so retries after rate
    /// limits take nothing from the budget. Replaces a budget set before. Default: none; all retries
    /// take from the layer's own budget.
    pub fn account(self, account: &Account) -> Self {
        self.with_budget(account.retry_budget()).with(|policy| policy.is_paced = true)
    }

    /// Sets the deadline of calls that have none of their own. It covers all attempts and waits; an
    /// attempt in flight is cancelled. Default: none, as the schedule bounds the waits.
    pub fn deadline(self, span: Duration) -> Self {
        self.with(|policy| policy.deadline = Some(span))
    }

    /// Sets a budget of this many retries at once, shared with clones of this layer; with 0,
    /// nothing is ever retried. It starts full. Each retry takes one; each call adds a fifth, and
    /// each second adds one. Replaces the budget of an [account](Self::account) set before. Default:
    /// 100.
    ///
    /// ```
    /// use tidegate_llm::retry::RetryLayer;
    /// let chat = RetryLayer::new("openai").budget(50).function("chat");
    /// let summaries = chat.clone().function("summaries");
    /// assert_eq!(summaries.remaining_budget(), 50);
    /// ```
    pub fn budget(self, retries: u32) -> Self {
        self.with_budget(&Budget::new(retries))
    }

    pub(crate) fn with_budget(self, budget: &Budget) -> Self {
        self.with(|policy| policy.budget = budget.clone())
    }

    /// Sets the seed of the jitter, for reproducible tests. Default: random.
    pub fn seed(self, seed: u64) -> Self {
        self.random(Random::seeded(seed))
    }

    pub(crate) fn random(self, random: Random) -> Self {
        self.with(|policy| policy.random = random)
    }

    /// Adds an observer. Default: [`tracing_observer`](crate::telemetry::tracing_observer), if none
    /// is added.
    pub fn observer(self, observer: Arc<dyn Observer>) -> Self {
        self.with(|policy| policy.observers.add(observer))
    }

    fn with(mut self, set: impl FnOnce(&mut Policy)) -> Self {
        set(Arc::make_mut(&mut self.policy));
        self
    }

    /// Returns the minimum (with full jitter) and maximum (without jitter) sum of all delays of a
    /// call, if the provider does not ask for longer ones. Calls survive any outage shorter than
    /// the minimum.
    #[must_use]
    pub fn window(&self) -> RangeInclusive<Duration> {
        self.policy.schedule.window()
    }

    /// Returns the number of retries left in the budget.
    #[must_use]
    pub fn remaining_budget(&self) -> u64 {
        self.policy.budget.remaining()
    }

    /// Logs the maximum number of retries, once for all clones. The layer does this when it creates
    /// its first service; call it in programs that only use [`run`](Self::run).
    pub fn log_configured(&self) {
        if self.policy.counters.is_logged.swap(true, Ordering::Relaxed) {
            return;
        }
        let retries = self.policy.schedule.attempts().saturating_sub(1);
        tracing::info!("{} client configured with max_retries={retries}", self.policy.provider);
    }

    /// Makes attempts of a call until one succeeds or no retry is possible.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub async fn run<R, T, A>(
        &self,
        request: R,
        mut attempt: impl FnMut(R) -> A,
    ) -> Result<T, CallError>
    where
        R: OutgoingCall + Clone,
        A: Future<Output = Result<T, CallError>>,
    {
        let policy = &self.policy;
        let deadline = request.options().deadline.or(policy.deadline);
        let time = TimeBudget { deadline, max_wait: request.options().max_wait };
        let provider = &policy.provider;
        let attempt = move |Attempt { left, max_wait, .. }: Attempt| {
            let mut request = request.clone();
            let options = request.options_mut();
            options.max_wait = max_wait;
            let limit = left.map(|left| {
                options.shorten(left);
                (left, options.permit_wait.insert(PermitWait::default()).clone())
            });
            within(limit, provider, attempt(request))
        };
        let span = tracing::debug_span!("llm.call", function = &*policy.function);
        Ok(run_within(policy, time, attempt).instrument(span).await?)
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        self.log_configured();
        Retry::new(inner, self.clone())
    }
}

/// Cancels an attempt that does not complete in the remaining time. While it waits for a permit, the
/// queue ends it, with an error that names the limit: the provider has not timed out.
async fn within<T>(
    limit: Option<(Duration, PermitWait)>,
    provider: &Provider,
    response: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let mut response = pin!(response);
    let Some((left, permit_wait)) = limit else { return response.await };
    let mut end = pin!(sleep(left));
    poll_fn(|context| {
        if let Poll::Ready(done) = response.as_mut().poll(context) {
            return Poll::Ready(done);
        }
        if permit_wait.is_waiting() || end.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        let (provider, kind) = (provider.clone(), ConnectionFailure::TimedOut);
        Poll::Ready(Err(CallError::Connection { provider, kind, source: None }))
    })
    .await
}
