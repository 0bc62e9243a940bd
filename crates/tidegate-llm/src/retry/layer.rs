//! The layer: how calls to a provider are tried again.

use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_providers::Provider;
use tokio::time::timeout;
use tower_layer::Layer;
use tracing::Instrument as _;

use super::budget::Budget;
use super::policy::Policy;
use super::random::Random;
use super::run::{Attempt, TimeBudget, run_within};
use super::service::Retry;
use crate::call::{Broken, CallError, Outgoing};
use crate::telemetry::Observer;

/// Makes services that try again. Clones share the counts and the budget.
///
/// The delay before retry `i` is [`base`](Self::base) doubled `i - 1` times and never above
/// [`cap`](Self::cap), less a random part of up to [`jitter_percent`](Self::jitter_percent).
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
    /// The defaults, with a budget of its own, for calls to a provider: eight retries after the first
    /// attempt, from one second up to 60, less up to a half.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_llm::retry::RetryLayer;
    ///
    /// let window = RetryLayer::new("openai").window();
    /// assert_eq!(*window.start(), Duration::from_millis(91_500));
    /// assert_eq!(*window.end(), Duration::from_secs(183));
    ///
    /// let short = RetryLayer::new("openai").max_retries(3).base(Duration::from_millis(500));
    /// assert_eq!(*short.jitter_percent(0).window().end(), Duration::from_millis(500 + 1_000 + 2_000));
    /// ```
    pub fn new(provider: impl Into<Provider>) -> Self {
        Self { policy: Arc::new(Policy::new(provider.into())) }
    }

    /// Retries after the first attempt. Default: 8, which makes nine attempts.
    pub fn max_retries(self, retries: u32) -> Self {
        self.with(|policy| policy.schedule = policy.schedule.max_retries(retries))
    }

    /// The delay before the first retry. Default: 1 s.
    pub fn base(self, span: Duration) -> Self {
        self.with(|policy| policy.schedule = policy.schedule.base(span))
    }

    /// The longest delay, unless a provider asks for a longer one. Default: 60 s.
    pub fn cap(self, span: Duration) -> Self {
        self.with(|policy| policy.schedule = policy.schedule.cap(span))
    }

    /// How much of a delay is left to chance, up to 100. Default: 50. With 0 all delays are exact,
    /// and workers that fail together come back together.
    pub fn jitter_percent(self, percent: u8) -> Self {
        self.with(|policy| policy.schedule = policy.schedule.jitter_percent(percent))
    }

    /// Logs at most 60 lines of attempts in 10 seconds, over all clones. For servers. Default: every
    /// attempt that fails.
    pub fn bounded_log(self) -> Self {
        self.with(|policy| policy.log = Some(Arc::default()))
    }

    /// What the call is named in the log. Default: the provider.
    pub fn function(self, name: &str) -> Self {
        self.with(|policy| policy.function = name.into())
    }

    /// The longest delay that is accepted from a provider: one that asks for more is given up at
    /// once. Default: ten minutes.
    pub fn max_server_delay(self, span: Duration) -> Self {
        self.with(|policy| policy.max_server_delay = span)
    }

    /// Says that attempts wait for permits of an account, which keeps rate limits closed for all of
    /// its calls: retries of rate limits then take nothing from the budget. Default: they do.
    pub fn paced(self) -> Self {
        self.with(|policy| policy.is_paced = true)
    }

    /// How long a call may take with all its attempts and waits, if it does not say so itself. What
    /// is under way then is broken off. Default: no limit, as the schedule bounds the waits.
    pub fn deadline(self, span: Duration) -> Self {
        self.with(|policy| policy.deadline = Some(span))
    }

    /// Shares a budget with others. Default: one of its own.
    pub fn budget(self, budget: &Budget) -> Self {
        self.with(|policy| policy.budget = budget.clone())
    }

    /// Draws the random parts of delays from this seed, so that a test repeats them. Default: they
    /// differ from run to run.
    pub fn seed(self, seed: u64) -> Self {
        self.random(Random::seeded(seed))
    }

    pub(crate) fn random(self, random: Random) -> Self {
        self.with(|policy| policy.random = random)
    }

    /// Who is told what happens. Default: [`tracing_observer`](crate::telemetry::tracing_observer).
    pub fn observer(self, observer: Arc<dyn Observer>) -> Self {
        self.with(|policy| policy.observer = observer)
    }

    fn with(mut self, set: impl FnOnce(&mut Policy)) -> Self {
        set(Arc::make_mut(&mut self.policy));
        self
    }

    /// How long all delays of a call take together, if no provider asks for more: from the least, with
    /// the largest random parts, to the most, without any. What is over sooner than the least is
    /// survived.
    #[must_use]
    pub fn window(&self) -> RangeInclusive<Duration> {
        self.policy.schedule.window()
    }

    /// How many retries the budget could pay for now.
    #[must_use]
    pub fn remaining_budget(&self) -> u64 {
        self.policy.budget.remaining()
    }

    /// Logs how often calls are tried again, once for all clones. The first service that the layer
    /// makes does so by itself; this is for programs that only [`run`](Self::run) calls.
    pub fn log_configured(&self) {
        if self.policy.counters.is_logged.swap(true, Ordering::Relaxed) {
            return;
        }
        let retries = self.policy.schedule.attempts().saturating_sub(1);
        tracing::info!("{} client configured with max_retries={retries}", self.policy.provider);
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
        self.log_configured();
        Retry::new(inner, self.clone())
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
