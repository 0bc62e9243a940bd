//! The fallback layer: a chain of targets.

use std::fmt;
use std::sync::Arc;

use tidegate_providers::Provider;
use tower_layer::Layer;
use tower_service::Service;

use super::service::Fallback;
use super::target::Target;
use crate::call::{CallError, OutgoingCall};
use crate::plan::{Checks, InvalidSettings, Rule};
use crate::telemetry::Counter;

/// Maximum number of targets in a chain. A longer chain would hide that no provider responds.
pub const MAX_TARGETS: usize = 10;

/// Wraps services so that failed calls fall back to other providers. Clones share the counts.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use tidegate_llm::fallback::FallbackLayer;
/// use tidegate_llm::{Call, CallError, ConnectionFailure};
/// use tidegate_llm::Chat;
/// use tower::{Layer as _, ServiceExt as _, service_fn};
///
/// let groq = service_fn(|_: Call| async { Ok::<_, CallError>("from groq") });
/// let layer = FallbackLayer::new("openai", [("groq", groq)])?;
/// let model = layer.layer(service_fn(|_: Call| async {
///     let (provider, kind) = ("openai".into(), ConnectionFailure::NotConnected);
///     Err(CallError::Connection { provider, kind, source: None })
/// }));
/// assert_eq!(model.oneshot(Call::new(Chat::user("hi"))).await?, "from groq");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FallbackLayer<R, T> {
    chain: Arc<Chain<R, T>>,
}

pub(super) struct Chain<R, T> {
    pub(super) primary: Provider,
    pub(super) targets: Vec<Target<R, T>>,
    pub(super) counters: Counters,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) calls: Counter,
    pub(super) turns: Counter,
    pub(super) rescued: Counter,
    pub(super) lost: Counter,
}

impl<R, T> FallbackLayer<R, T> {
    /// Creates a layer for calls to `primary` that fall back to `targets`, in this order:
    /// providers, each with the service that calls it. The services should have their own rate
    /// limits around them: calls that fall back count there like any others. Box services of
    /// different types (`tower::util::BoxCloneSyncService`).
    ///
    /// # Errors
    /// If there are no targets, or more than [`MAX_TARGETS`].
    pub fn new<S>(
        primary: impl Into<Provider>,
        targets: impl IntoIterator<Item = (impl Into<Provider>, S)>,
    ) -> Result<Self, InvalidSettings>
    where
        S: Service<R, Response = T, Error = CallError> + Clone + Send + Sync + 'static,
        S::Future: Send,
        R: Send + 'static,
        T: 'static,
    {
        let targets = targets.into_iter();
        Self::with_targets(
            primary,
            targets.map(|(provider, service)| Target::new(provider, service)),
        )
    }

    /// Creates a layer like [`new`](Self::new) from functions that call the providers.
    ///
    /// # Errors
    /// If there are no targets, or more than [`MAX_TARGETS`].
    pub fn from_fns<F, A>(
        primary: impl Into<Provider>,
        targets: impl IntoIterator<Item = (impl Into<Provider>, F)>,
    ) -> Result<Self, InvalidSettings>
    where
        F: Fn(R) -> A + Send + Sync + 'static,
        A: Future<Output = Result<T, CallError>> + Send + 'static,
    {
        let targets = targets.into_iter();
        Self::with_targets(primary, targets.map(|(provider, call)| Target::from_fn(provider, call)))
    }

    pub(crate) fn with_targets(
        primary: impl Into<Provider>,
        targets: impl IntoIterator<Item = Target<R, T>>,
    ) -> Result<Self, InvalidSettings> {
        let targets: Vec<_> = targets.into_iter().collect();
        let rule = match targets.len() {
            0 => Some(Rule::Missing),
            many => (many > MAX_TARGETS).then_some(Rule::TooMany(MAX_TARGETS)),
        };
        let mut checks = Checks::default();
        if let Some(rule) = rule {
            let named: Vec<_> = targets.iter().map(|target| target.provider().as_str()).collect();
            checks.reject("chain", &named, rule);
        }
        let (primary, counters) = (primary.into(), Counters::default());
        checks.finish(Self { chain: Arc::new(Chain { primary, targets, counters }) })
    }

    /// Awaits the response of the primary provider, and tries the targets with `request` if it
    /// fails.
    ///
    /// # Errors
    /// The error of the primary provider, with that of a target if a retry may help there.
    pub async fn run(
        &self,
        request: R,
        first: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError>
    where
        R: OutgoingCall + Clone,
    {
        self.chain.run(request, first).await
    }

    /// Calls started, over all services of this layer.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.chain.counters.calls.read()
    }

    /// Fallbacks to another provider; a call can have several.
    #[must_use]
    pub fn fallbacks(&self) -> u64 {
        self.chain.counters.turns.read()
    }

    /// Calls that succeeded at another provider.
    #[must_use]
    pub fn rescued(&self) -> u64 {
        self.chain.counters.rescued.read()
    }

    /// Calls that fell back and failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.chain.counters.lost.read()
    }
}

impl<S, R, T> Layer<S> for FallbackLayer<R, T> {
    type Service = Fallback<S, R, T>;

    fn layer(&self, inner: S) -> Fallback<S, R, T> {
        Fallback::new(inner, self.chain.clone())
    }
}

impl<R, T> Clone for FallbackLayer<R, T> {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone() }
    }
}

impl<R, T> fmt::Debug for FallbackLayer<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FallbackLayer").field(&self.chain).finish()
    }
}

impl<R, T> fmt::Debug for Chain<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entry(&self.primary).entries(&self.targets).finish()
    }
}
