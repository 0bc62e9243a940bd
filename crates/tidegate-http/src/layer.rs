//! Rate limits in front of any HTTP service, as a tower layer.
//!
//! ```
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use tidegate::{Engine, Policy};
//! use tidegate_http::key;
//! use tidegate_http::layer::LimitLayer;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::new();
//! let policy = Policy::per_second(5).capacity(1).build()?;
//! let layer = LimitLayer::new().limit(engine.limiter("users", policy)?, key::header("x-user"));
//!
//! let handler = service_fn(|_: Request<()>| async {
//!     Ok::<_, std::convert::Infallible>(Response::new(Full::<bytes::Bytes>::from("hello")))
//! });
//! let service = ServiceBuilder::new().layer(layer).service(handler);
//! let request = || Request::get("/").header("x-user", "alice").body(()).unwrap();
//!
//! let first = service.clone().oneshot(request()).await?;
//! assert_eq!((first.status().as_u16(), &first.headers()["ratelimit"]), (200, &r#""users";r=0;t=1"#.parse()?));
//! let second = service.oneshot(request()).await?;
//! assert_eq!((second.status().as_u16(), &second.headers()["retry-after"]), (429, &"1".parse()?));
//! # Ok(())
//! # }
//! ```
//!
//! - All limits of a layer are charged together or not at all. A refused request costs nothing and
//!   never reaches the service.
//! - When the response ends, slots of concurrency limits are released and costs are
//!   [settled](LimitLayer::settle). The layer does not renew slot leases: a lease must outlast the
//!   longest response, or its slot is granted to another request while the response is still being
//!   sent.
//! - An upgrade ends the response: with the 101, slots are released and the request is no longer
//!   pending. Limit what follows on the connection by other means, such as `tidegate-ws`.
//! - If a caller disconnects while the store decides, its charge is settled and its slots are
//!   released, as for a request without a response. This requires a tokio runtime. Without slots or
//!   a settlement, the charge stays spent.
//! - Bodies pass through unchanged: streams are not buffered, upgrades are not touched.
//! - A local store decides without allocating; a shared store is awaited.

mod admission;
mod decision;
mod log;
mod response;
mod service;
mod settings;
mod settings_source;

use std::fmt;
use std::sync::Arc;

use tidegate::Limiter;
use tower_layer::Layer;

pub use admission::AdmissionLayer;
pub use decision::request_decision::RequestDecision;
pub use decision::rule::LimitRule;
pub use response::body::Body;
pub use response::future::ResponseFuture;
pub use response::response_summary::{ResponseEnd, ResponseSummary};
pub use service::Limited;
use settings::Settings;
#[cfg(any(feature = "axum", feature = "tonic"))]
pub(crate) use settings::SharedSettings;
pub(crate) use settings_source::SettingsSource;

use crate::field::Styles;
use crate::head::Head;
use crate::identity::ClientAddress;
use crate::key::KeySource;
use crate::problem::ProblemRenderer;
use crate::refusal::Refusal;

/// Limits every request before it reaches the service. Cheap to clone; see the [module](self).
///
/// ```
/// use tidegate::{Engine, Policy};
/// use tidegate_http::key;
/// use tidegate_http::layer::LimitLayer;
///
/// let clients = Engine::new().limiter("clients", Policy::per_second(5).capacity(20).build()?)?;
/// let layer = LimitLayer::new().limit(clients, key::client_ip());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// | without | a request |
/// | --- | --- |
/// | [`limit`](Self::limit), [`rule`](Self::rule) | is not limited |
/// | [`cost`](Self::cost) | costs 1 |
/// | [`headers`](Self::headers) | gets the header fields of draft 11 |
/// | [`client_address`](Self::client_address) | is identified by its peer address |
#[derive(Clone, Default)]
#[must_use]
pub struct LimitLayer {
    settings: Arc<Settings>,
}

impl LimitLayer {
    /// Creates a layer without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a limit, charged by `key`. A request without a key is charged to its client address.
    /// Use a [`LimitRule`] for more options.
    ///
    /// # Panics
    /// Panics if the limiter is on a different store than the limits added before, or if the layer
    /// already has 16 limits.
    pub fn limit(self, limiter: Limiter, key: impl KeySource + 'static) -> Self {
        self.rule(LimitRule::new(limiter, key))
    }

    /// Adds a limit with its options.
    ///
    /// # Panics
    /// Panics if the limiter is on a different store than the limits added before, or if the layer
    /// already has 16 limits.
    pub fn rule(mut self, rule: LimitRule) -> Self {
        self.settings().limits.add(rule);
        self
    }

    /// Sets the cost of a request for every limit. The default is 1. A request of cost zero is not
    /// charged and never refused, unless the cost is [settled](Self::settle): then at least 1 is
    /// taken up front, and returned if the request turns out to be free.
    ///
    /// A panic in this function or in a key function propagates to the server; nothing is charged
    /// then.
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.settings().limits.set_cost(Arc::new(cost));
        self
    }

    /// Sets the actual cost of a request, computed when its response ends: when the body has been
    /// sent or dropped. The difference to the cost taken up front is charged, into debt if
    /// necessary, or returned. Costs one allocation per request, and a task on shared stores.
    ///
    /// Called once per response, for all limits except those with a [`LimitRule::settle`]. If it
    /// panics, the layer logs that once and keeps the cost taken up front.
    ///
    /// ```
    /// use tidegate_http::layer::LimitLayer;
    /// // Server errors are free.
    /// let layer = LimitLayer::new().settle(|response| {
    ///     let failed = response.status().is_none_or(|status| status.is_server_error());
    ///     u64::from(!failed)
    /// });
    /// ```
    pub fn settle(
        mut self,
        actual: impl Fn(&ResponseSummary) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.settings().limits.set_settle(Arc::new(actual));
        self
    }

    /// Sets the header fields that report limits: one or more [styles](crate::field::Style), or
    /// [`Styles::NONE`].
    pub fn headers(mut self, styles: impl Into<Styles>) -> Self {
        self.settings().styles = styles.into();
        self
    }

    /// Sets how the client address is found: behind which proxies, and how much of it counts.
    pub fn client_address(mut self, clients: ClientAddress) -> Self {
        self.settings().clients = clients;
        self
    }

    /// Sets the type URIs of problem documents.
    pub fn problems(mut self, problems: ProblemRenderer) -> Self {
        self.settings().problems = problems;
        self
    }

    /// Exempts requests for which `exempt` returns true: they are charged nothing and always
    /// served.
    pub fn allow(mut self, exempt: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.settings().exempt = Some(Arc::new(exempt));
        self
    }

    /// Decides and charges, but refuses no request and adds no header fields. A would-be refusal is
    /// reported in a tracing event, and to the handler in [`RequestDecision`].
    pub fn shadow(mut self) -> Self {
        self.settings().shadow = true;
        self
    }

    /// Puts the decision into the extensions of every request as [`RequestDecision`]. Costs some
    /// allocations per request.
    pub fn expose(mut self) -> Self {
        self.settings().expose = true;
        self
    }

    /// Lets pages of other origins read the fields, using `Access-Control-Expose-Headers`.
    pub fn expose_headers(mut self) -> Self {
        self.settings().expose_headers = true;
        self
    }

    /// Adds random jitter to retry hints: up to `percent` percent of the wait, at most 100, so that
    /// callers refused together do not return together.
    pub fn retry_jitter(mut self, percent: u8) -> Self {
        self.settings().jitter_percent = percent.min(100);
        self
    }

    /// Calls `listener` for every refused request, for counters and logs of the application. It
    /// runs before the response is made, and not in [shadow](Self::shadow) mode. A panic in it is
    /// logged once and has no other effect.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use tidegate_http::RefusalCause;
    /// use tidegate_http::layer::LimitLayer;
    ///
    /// let over_limits = Arc::new(AtomicU64::new(0));
    /// let counter = over_limits.clone();
    /// let layer = LimitLayer::new().on_refused(move |refusal| {
    ///     if refusal.cause() == RefusalCause::Limit {
    ///         counter.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// });
    /// ```
    pub fn on_refused(mut self, listener: impl Fn(&Refusal<'_>) + Send + Sync + 'static) -> Self {
        self.settings().on_refused = Some(Arc::new(listener));
        self
    }

    fn settings(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }

    #[cfg(any(feature = "axum", feature = "tonic"))]
    pub(crate) fn into_shared(self) -> SharedSettings {
        self.settings
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited::new(inner, SettingsSource::Fixed(self.settings.clone()))
    }
}

impl fmt::Debug for LimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitLayer")
            .field("limits", &self.settings.limits.rules())
            .field("headers", &self.settings.styles)
            .field("shadow", &self.settings.shadow)
            .finish_non_exhaustive()
    }
}
