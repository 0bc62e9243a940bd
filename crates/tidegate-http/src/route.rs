//! One layer with a policy per route of an axum router, and the decision as an extractor.
//!
//! ```
//! use axum::Router;
//! use axum::routing::{get, post};
//! use http::Method;
//! use tidegate::{Engine, Policy};
//! use tidegate_http::key;
//! use tidegate_http::layer::{LimitLayer, RequestDecision};
//! use tidegate_http::route::PerRoute;
//!
//! let engine = Engine::new();
//! let all = engine.limiter("all", Policy::per_second(50).capacity(100).build()?)?;
//! let search = engine.limiter("search", Policy::per_second(1).capacity(5).build()?)?;
//! let logins = engine.limiter("logins", Policy::per_minute(5).build()?)?;
//!
//! let by_client = |limiter| LimitLayer::new().limit(limiter, key::client_ip()).expose();
//! let limits = PerRoute::new()
//!     .route("/search/{topic}", by_client(search))
//!     .method(Method::POST, "/session", by_client(logins))
//!     .fallback(by_client(all));
//!
//! async fn left(decided: RequestDecision) -> String {
//!     decided.binding().map_or(0, |limit| limit.remaining()).to_string()
//! }
//! let router: Router = Router::new()
//!     .route("/search/{topic}", get(left))
//!     .route("/session", post(left).get(left))
//!     .layer(limits);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Add the layer with `Router::layer`, after the routes. Around the whole router no route is
//! matched yet, and every request gets the default policy.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::extract::{FromRequestParts, MatchedPath, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::layer::{
    LimitLayer, Limited, RequestDecision, ResponseFuture, SettingsSource, SharedSettings,
};

/// A layer with a policy per route; see the [module](self) for an example.
///
/// A policy for a route and method takes precedence over one for the route, and that over the
/// default. A HEAD request without a policy of its own uses the one for GET, whose handler serves
/// it. A route without any policy is not limited.
#[derive(Clone, Default)]
#[must_use]
pub struct PerRoute(Arc<Table>);

/// Policies by route template.
#[derive(Clone, Default)]
pub(crate) struct Table {
    routes: HashMap<String, Policies>,
    otherwise: Option<SharedSettings>,
}

/// The policies of one route.
#[derive(Clone, Default)]
struct Policies {
    methods: Vec<(Method, SharedSettings)>,
    any: Option<SharedSettings>,
}

impl PerRoute {
    /// Creates a layer without policies.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the policy for a route, given by its full template: `/users/{id}`, or `/api/users/{id}`
    /// in a nested router. Routes without a policy use the one of [`fallback`](Self::fallback). A
    /// misspelled template is not detected and limits nothing.
    pub fn route(mut self, route: impl Into<String>, policy: LimitLayer) -> Self {
        self.policies(route.into()).any = Some(policy.into_shared());
        self
    }

    /// Sets the policy for one method of a route.
    pub fn method(mut self, method: Method, route: impl Into<String>, policy: LimitLayer) -> Self {
        let policies = self.policies(route.into());
        policies.methods.retain(|(other, _)| *other != method);
        policies.methods.push((method, policy.into_shared()));
        self
    }

    /// Sets the policy for all requests without one of their own.
    pub fn fallback(mut self, policy: LimitLayer) -> Self {
        Arc::make_mut(&mut self.0).otherwise = Some(policy.into_shared());
        self
    }

    fn policies(&mut self, route: String) -> &mut Policies {
        Arc::make_mut(&mut self.0).routes.entry(route).or_default()
    }
}

impl Table {
    pub(crate) fn settings<B>(&self, request: &Request<B>) -> Option<&SharedSettings> {
        // Skip the lookup in the common case of one policy for all routes.
        if self.routes.is_empty() {
            return self.otherwise.as_ref();
        }
        let route = request.extensions().get::<MatchedPath>();
        let policies = route.and_then(|route| self.routes.get(route.as_str()));
        policies.and_then(|policies| policies.of(request.method())).or(self.otherwise.as_ref())
    }
}

impl Policies {
    fn of(&self, method: &Method) -> Option<&SharedSettings> {
        let named = |wanted: &Method| {
            self.methods.iter().find(|(method, _)| method == wanted).map(|(_, policy)| policy)
        };
        let as_get = || if *method == Method::HEAD { named(&Method::GET) } else { None };
        named(method).or_else(as_get).or(self.any.as_ref())
    }
}

impl<S> Layer<S> for PerRoute {
    type Service = LimitedRoute<S>;

    fn layer(&self, inner: S) -> LimitedRoute<S> {
        LimitedRoute(Limited::new(inner, SettingsSource::PerRoute(self.0.clone())))
    }
}

/// A [`Limited`] service for axum, with axum's body type. If nothing has to run at the end of a
/// response, its body is passed through unchanged, which saves axum another box.
#[derive(Clone, Debug)]
pub struct LimitedRoute<S>(Limited<S>);

impl<S, B> Service<Request<B>> for LimitedRoute<S>
where
    S: Service<Request<B>, Response = Response> + Clone,
{
    type Response = Response;
    type Error = S::Error;
    type Future = RouteFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        RouteFuture { inner: self.0.call(request) }
    }
}

pin_project! {
    /// The response future of [`LimitedRoute`].
    pub struct RouteFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        inner: ResponseFuture<S, B, axum::body::Body>,
    }
}

impl<S, B> Future for RouteFuture<S, B>
where
    S: Service<Request<B>, Response = Response>,
{
    type Output = Result<Response, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(self.project().inner.poll(cx));
        Poll::Ready(response.map(|response| response.map(axum::body::Body::from)))
    }
}

impl<S, B> fmt::Debug for RouteFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RouteFuture").field(&self.inner).finish()
    }
}

impl fmt::Debug for PerRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.routes.keys()).finish()
    }
}

/// Error of the [`RequestDecision`] extractor: no layer exposed a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no layer has exposed its decision; see LimitLayer::expose")]
pub struct DecisionNotExposed;

impl IntoResponse for DecisionNotExposed {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for RequestDecision {
    type Rejection = DecisionNotExposed;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, DecisionNotExposed> {
        parts.extensions.get().cloned().ok_or(DecisionNotExposed)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for RequestDecision {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}
