//! Limits in front of any HTTP service, as a tower layer.
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
//! - All limits of a layer are charged together or not at all. A request that is refused costs
//!   nothing and never reaches the service.
//! - Slots of concurrency limits are given back when the response is over, and costs are then
//!   [settled](LimitLayer::settle). Leases of slots are not renewed: a lease has to outlast the
//!   longest response, else its slot goes to somebody else while it is still being sent.
//! - An upgrade ends the response: with the 101 slots are given back, and the request is no longer
//!   pending. What follows on the connection is for others to limit, as `tidegate-ws` does.
//! - A caller that goes away while the store is being asked owes nothing: what was charged is
//!   settled, and slots given back, as for a request without a response. That takes a tokio
//!   runtime. Where there are neither slots nor a settlement the charge stays spent.
//! - Bodies pass as they are: streams are not buffered, upgrades not touched.
//! - A store that answers at once is asked without allocating; one that does not is waited for.

mod admission;
mod choice;
mod decision;
mod log;
mod response;
mod service;
mod settings;

use std::fmt;
use std::sync::Arc;

use tidegate::Limiter;
use tower_layer::Layer;

pub use admission::AdmissionLayer;
pub(crate) use choice::Choice;
pub use decision::decided::Decided;
pub use decision::rule::Rule;
pub use response::body::Body;
pub use response::future::ResponseFuture;
pub use response::response_summary::{ResponseEnd, ResponseSummary};
pub use service::Limited;
use settings::Settings;
#[cfg(any(feature = "axum", feature = "tonic"))]
pub(crate) use settings::Shared;

use crate::field::Styles;
use crate::head::Head;
use crate::identity::ClientAddress;
use crate::key::KeySource;
use crate::problem::Problems;
use crate::refusal::Refusal;

/// A layer of limits. Cheap to clone; see the [module](self).
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
/// | [`headers`](Self::headers) | is told of limits as in draft 11 |
/// | [`client_address`](Self::client_address) | comes from the other end of its connection |
#[derive(Clone, Default)]
#[must_use]
pub struct LimitLayer {
    settings: Arc<Settings>,
}

impl LimitLayer {
    /// A layer without limits, to add some.
    pub fn new() -> Self {
        Self::default()
    }

    /// With this limit, charged by this key; a request without one is charged to its client's
    /// address. A [`Rule`] can say more.
    ///
    /// # Panics
    /// When the limiter is on another store than the limits before it, or is the seventeenth.
    pub fn limit(self, limiter: Limiter, key: impl KeySource + 'static) -> Self {
        self.rule(Rule::new(limiter, key))
    }

    /// With this limit.
    ///
    /// # Panics
    /// When it is on another store than the limits before it, or is the seventeenth.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.settings().limits.add(rule);
        self
    }

    /// What a request costs of every limit, instead of 1. At zero nothing is charged and nobody
    /// is refused, unless the cost is [settled](Self::settle): then at least one is taken before,
    /// and given back if the request was really free.
    ///
    /// A panic in this or in a function for keys goes on to the server; nothing is charged then.
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.settings().limits.set_cost(Arc::new(cost));
        self
    }

    /// What a request has really cost, told when its response is over: when its body has ended,
    /// or was dropped. The difference to the cost taken before is charged, into debt if need be,
    /// or given back. It costs an allocation for each request, and a task on stores that must be
    /// waited for.
    ///
    /// It is called once for a response and counts for all limits but those that have a
    /// [`Rule::settle`]. If it panics, that is logged once and the cost stays as it was taken.
    ///
    /// ```
    /// use tidegate_http::layer::LimitLayer;
    /// // What failed on our side is free.
    /// let layer = LimitLayer::new().settle(|response| {
    ///     let failed = response.status().is_none_or(|status| status.is_server_error());
    ///     u64::from(!failed)
    /// });
    /// ```
    pub fn settle(
        mut self,
        real: impl Fn(&ResponseSummary) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.settings().limits.set_settle(Arc::new(real));
        self
    }

    /// How callers are told of limits: one or several [styles](crate::field::Style), or
    /// [`Styles::NONE`].
    pub fn headers(mut self, styles: impl Into<Styles>) -> Self {
        self.settings().styles = styles.into();
        self
    }

    /// How the address of a client is found: behind which proxies, and how much of it counts.
    pub fn client_address(mut self, clients: ClientAddress) -> Self {
        self.settings().clients = clients;
        self
    }

    /// The types of problem documents.
    pub fn problems(mut self, problems: Problems) -> Self {
        self.settings().problems = problems;
        self
    }

    /// Requests for which this is true are charged nothing and always served.
    pub fn allow(mut self, exempt: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.settings().exempt = Some(Arc::new(exempt));
        self
    }

    /// Decides and charges, but refuses nobody and adds no fields. Who would have been refused is
    /// told in a tracing event, and to the handler by [`Decided`].
    pub fn shadow(mut self) -> Self {
        self.settings().shadow = true;
        self
    }

    /// Puts the decision into the extensions of every request as [`Decided`]. It costs some
    /// allocations for each.
    pub fn expose(mut self) -> Self {
        self.settings().expose = true;
        self
    }

    /// Lets pages of other origins read the fields, by `Access-Control-Expose-Headers`.
    pub fn readable_by_browsers(mut self) -> Self {
        self.settings().browsers = true;
        self
    }

    /// Tells callers to come back up to this many percent later than they could, at most 100,
    /// each at another time: those who were refused together do not return together.
    pub fn spread_retries(mut self, percent: u8) -> Self {
        self.settings().jitter_percent = percent.min(100);
        self
    }

    /// Tells of every request that is refused: for counters and logs of the application. It is
    /// called before the response is made, and not in [shadow](Self::shadow). A panic in it is
    /// logged once and harms nobody.
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
    pub(crate) fn into_shared(self) -> Shared {
        self.settings
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited::new(inner, Choice::Same(self.settings.clone()))
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
