//! Admission in front of any HTTP service, as a tower layer.

use std::fmt;
use std::sync::Arc;

use tidegate::admission::Admission;
use tower_layer::Layer;

use super::choice::Choice;
use super::decision::tiers::Tiers;
use super::response::response_summary::ResponseSummary;
use super::service::Limited;
use super::settings::Settings;
use crate::field::Styles;
use crate::head::Head;
use crate::identity::ClientAddress;
use crate::key::{KeySource, Missing};
use crate::problem::Problems;
use crate::refusal::Refusal;

/// Three tiers in front of a service: what is pending, the client, its organization. A request is
/// pending until its response is over.
///
/// ```
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use tidegate::Engine;
/// use tidegate::admission::{Admission, Rules};
/// use tidegate_http::key;
/// use tidegate_http::layer::AdmissionLayer;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let admission = Admission::new(&Engine::new(), Rules::default())?;
/// let layer = AdmissionLayer::new(admission.clone())
///     .organization(key::header("x-organization"))
///     .client(key::api_key("x-api-key"));
///
/// let handler = service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(Full::<bytes::Bytes>::from("hello")))
/// });
/// let service = ServiceBuilder::new().layer(layer).service(handler);
/// let request = Request::get("/").header("x-organization", "acme").header("x-api-key", "k").body(())?;
/// let response = service.oneshot(request).await?;
/// assert_eq!(response.headers()["ratelimit"], r#""client";r=99;t=1, "organization";r=999;t=1"#);
/// assert_eq!(admission.pending(), 1);
/// drop(response);
/// assert_eq!(admission.pending(), 0);
/// # Ok(())
/// # }
/// ```
///
/// A rejection under back-pressure has status 503, by a bucket 429; both tell `level` and
/// `reason` in their problem document.
///
/// Rules, shadow mode and the allow-list are those of the admission, and change with it. In shadow
/// nobody is refused, also not for want of a key or because the store does not answer; no fields
/// are added, and every handler is told by [`Decided`](super::Decided). The allow-list has keys as
/// this layer writes them: a hash for [`api_key`](crate::key::api_key) and
/// [`bearer`](crate::key::bearer), with a tag for [`first_of`](crate::key::first_of).
#[derive(Clone)]
#[must_use]
pub struct AdmissionLayer {
    settings: Arc<Settings>,
}

impl AdmissionLayer {
    /// Asks this admission about every request. Until somebody says how callers are known, only
    /// back-pressure rejects any.
    pub fn new(admission: Admission) -> Self {
        let settings = Settings { tiers: Some(Tiers::new(admission)), ..Settings::default() };
        Self { settings: Arc::new(settings) }
    }

    /// How the organization of a request is known. One without is charged to its client's address
    /// in that tier, unless [said otherwise](Self::missing_organization).
    pub fn organization(mut self, key: impl KeySource + 'static) -> Self {
        self.tiers(|tiers| tiers.know_organization(key));
        self
    }

    /// How the client of a request is known. One without is charged to its address, unless
    /// [said otherwise](Self::missing_client).
    pub fn client(mut self, key: impl KeySource + 'static) -> Self {
        self.tiers(|tiers| tiers.know_client(key));
        self
    }

    /// What becomes of requests without an organization; by default the client's address stands
    /// in for it. A field that stands twice is no key.
    pub fn missing_organization(mut self, missing: Missing) -> Self {
        self.tiers(|tiers| tiers.missing_organization = missing);
        self
    }

    /// What becomes of requests without a client; by default its address stands in for it. A field
    /// that stands twice is no key.
    ///
    /// With [`Missing::Skip`] the rules of the admission have the say: the tier is left out, or
    /// with [`Rules::limit_connections`](tidegate::admission::Rules::limit_connections) each
    /// connection has a bucket.
    pub fn missing_client(mut self, missing: Missing) -> Self {
        self.tiers(|tiers| tiers.missing_client = missing);
        self
    }

    /// What a request costs in both tiers, instead of 1. Where it is [settled](Self::settle), at
    /// least one is taken before.
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.tiers(|tiers| tiers.cost = Some(Arc::new(cost)));
        self
    }

    /// What a request has really cost, told when its response is over; see
    /// [`LimitLayer::settle`](super::LimitLayer::settle).
    pub fn settle(
        mut self,
        real: impl Fn(&ResponseSummary) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.tiers(|tiers| tiers.settle = Some(Arc::new(real)));
        self
    }

    /// How callers are told of limits.
    pub fn headers(mut self, styles: impl Into<Styles>) -> Self {
        self.change().styles = styles.into();
        self
    }

    /// How the address of a client is found.
    pub fn client_address(mut self, clients: ClientAddress) -> Self {
        self.change().clients = clients;
        self
    }

    /// The types of problem documents.
    pub fn problems(mut self, problems: Problems) -> Self {
        self.change().problems = problems;
        self
    }

    /// Puts the decision into the extensions of every request as [`Decided`](super::Decided).
    pub fn expose(mut self) -> Self {
        self.change().expose = true;
        self
    }

    /// Lets pages of other origins read the fields, by `Access-Control-Expose-Headers`.
    pub fn readable_by_browsers(mut self) -> Self {
        self.change().browsers = true;
        self
    }

    /// Tells of every request that is refused; see
    /// [`LimitLayer::on_refused`](super::LimitLayer::on_refused).
    pub fn on_refused(mut self, listener: impl Fn(&Refusal<'_>) + Send + Sync + 'static) -> Self {
        self.change().on_refused = Some(Arc::new(listener));
        self
    }

    fn change(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }

    fn tiers(&mut self, change: impl FnOnce(&mut Tiers)) {
        if let Some(tiers) = &mut self.change().tiers {
            change(tiers);
        }
    }
}

impl<S> Layer<S> for AdmissionLayer {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited::new(inner, Choice::Same(self.settings.clone()))
    }
}

impl fmt::Debug for AdmissionLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionLayer").finish_non_exhaustive()
    }
}
