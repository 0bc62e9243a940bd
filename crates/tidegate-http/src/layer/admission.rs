//! Three-tier admission in front of any HTTP service, as a tower layer.

use std::fmt;
use std::sync::Arc;

use tidegate::admission::Admission;
use tower_layer::Layer;

use super::decision::tiers::Tiers;
use super::response::response_summary::ResponseSummary;
use super::service::Limited;
use super::settings::Settings;
use super::settings_source::SettingsSource;
use crate::field::Styles;
use crate::head::Head;
use crate::identity::ClientAddress;
use crate::key::{KeySource, MissingKey};
use crate::problem::ProblemRenderer;
use crate::refusal::Refusal;

/// Admission in three tiers: back-pressure from pending requests, the client, and its organization.
/// A request is pending until its response ends.
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
/// A rejection by back-pressure has status 503, one by a bucket 429; both have `level` and `reason`
/// in their problem document.
///
/// Rules, shadow mode and the allow-list belong to the admission, and change with it. In shadow
/// mode no request is refused, not even without a key or when the store is unavailable; no header
/// fields are added, and every handler gets a [`RequestDecision`](super::RequestDecision). The
/// allow-list compares keys as this layer writes them: hashed for [`api_key`](crate::key::api_key)
/// and [`bearer`](crate::key::bearer), tagged for [`first_of`](crate::key::first_of).
#[derive(Clone)]
#[must_use]
pub struct AdmissionLayer {
    settings: Arc<Settings>,
}

impl AdmissionLayer {
    /// Creates a layer that checks every request with this admission. Until a client or
    /// organization key is set, only back-pressure rejects requests.
    pub fn new(admission: Admission) -> Self {
        let settings = Settings { tiers: Some(Tiers::new(admission)), ..Settings::default() };
        Self { settings: Arc::new(settings) }
    }

    /// Sets the key that identifies the organization of a request. A request without one is charged
    /// to its client address in that tier, unless [configured
    /// otherwise](Self::missing_organization).
    pub fn organization(mut self, key: impl KeySource + 'static) -> Self {
        self.tiers(|tiers| tiers.set_organization(key));
        self
    }

    /// Sets the key that identifies the client of a request. A request without one is charged to
    /// its client address, unless [configured otherwise](Self::missing_client).
    pub fn client(mut self, key: impl KeySource + 'static) -> Self {
        self.tiers(|tiers| tiers.set_client(key));
        self
    }

    /// Sets what to do with requests without an organization. The default charges the client
    /// address instead. A repeated header field counts as no key.
    pub fn missing_organization(mut self, missing: MissingKey) -> Self {
        self.tiers(|tiers| tiers.missing_organization = missing);
        self
    }

    /// Sets what to do with requests without a client key. The default charges the client address
    /// instead. A repeated header field counts as no key.
    ///
    /// With [`MissingKey::Skip`] the rules of the admission decide: the tier is skipped, or with
    /// [`Rules::limit_connections`](tidegate::admission::Rules::limit_connections) each connection
    /// gets its own bucket.
    pub fn missing_client(mut self, missing: MissingKey) -> Self {
        self.tiers(|tiers| tiers.missing_client = missing);
        self
    }

    /// Sets the cost of a request in both tiers. The default is 1. If the cost is
    /// [settled](Self::settle), at least 1 is taken up front.
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.tiers(|tiers| tiers.cost = Some(Arc::new(cost)));
        self
    }

    /// Sets the actual cost of a request, computed when its response ends; see
    /// [`LimitLayer::settle`](super::LimitLayer::settle).
    pub fn settle(
        mut self,
        actual: impl Fn(&ResponseSummary) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.tiers(|tiers| tiers.settle = Some(Arc::new(actual)));
        self
    }

    /// Sets the header fields that report limits.
    pub fn headers(mut self, styles: impl Into<Styles>) -> Self {
        self.change().styles = styles.into();
        self
    }

    /// Sets how the client address is found.
    pub fn client_address(mut self, clients: ClientAddress) -> Self {
        self.change().clients = clients;
        self
    }

    /// Sets the type URIs of problem documents.
    pub fn problems(mut self, problems: ProblemRenderer) -> Self {
        self.change().problems = problems;
        self
    }

    /// Puts the decision into the extensions of every request as
    /// [`RequestDecision`](super::RequestDecision).
    pub fn expose(mut self) -> Self {
        self.change().expose = true;
        self
    }

    /// Lets pages of other origins read the fields, using `Access-Control-Expose-Headers`.
    pub fn expose_headers(mut self) -> Self {
        self.change().expose_headers = true;
        self
    }

    /// Calls `listener` for every refused request; see
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
        Limited::new(inner, SettingsSource::Fixed(self.settings.clone()))
    }
}

impl fmt::Debug for AdmissionLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionLayer").finish_non_exhaustive()
    }
}
