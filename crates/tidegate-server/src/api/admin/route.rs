//! The routes of the admin API and their access checks.
//!
//! Health checks need no token and may use any `Host`: they address a machine by whatever name they
//! know, and learn only whether it is healthy. The summary needs no token either: it contains
//! limits, but no addresses, hashes or paths. A request with a valid token may use any `Host` too,
//! since no foreign web page has one. All other requests must pass the host check first, so that a
//! web page cannot even learn whether tokens are configured.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, Method};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};

use super::AdminState;
use super::problem::AdminProblem;
use super::{config, event_stream, keys, providers};
use crate::api::health;
use crate::api::problem::Problem;
use crate::metrics::Format;
use crate::tokens::{Caller, Role};

/// Returns the router of all paths.
pub(super) fn router(state: Arc<AdminState>) -> Router {
    let probes = Router::new()
        .route("/healthz", get(async || health::liveness()))
        .route("/readyz", get(readiness));
    // Callers may know the limits that apply to them.
    let public = Router::new()
        .route("/config", get(config::summary))
        .layer(middleware::from_fn_with_state(state.clone(), authorize_optional));
    Router::new()
        .route("/admin/config", get(config::show).patch(config::change).post(config::change))
        .route("/admin/keys/{action}", post(keys::operate))
        .route("/admin/history", get(config::history))
        .route("/admin/events", get(event_stream::events))
        .route("/admin/providers", get(providers::all))
        .route("/admin/providers/{name}", get(providers::one))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(openapi))
        .fallback(async || AdminProblem::NotFound)
        .layer(middleware::from_fn_with_state(state.clone(), authorize))
        .merge(public)
        .merge(probes)
        .method_not_allowed_fallback(async || Problem::Method)
        .with_state(state)
}

async fn authorize(
    State(state): State<Arc<AdminState>>,
    mut request: Request,
    next: Next,
) -> Response {
    match state.authorize(&request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

async fn authorize_optional(
    State(state): State<Arc<AdminState>>,
    request: Request,
    next: Next,
) -> Response {
    match state.authorize(&request) {
        // The host check has passed, and nothing here is secret.
        Ok(_) | Err(AdminProblem::Unauthorized(_)) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

impl AdminState {
    /// Authenticates and authorizes a request.
    fn authorize(&self, request: &Request) -> Result<Caller, AdminProblem> {
        let needed = match *request.method() {
            Method::GET | Method::HEAD => Role::Read,
            _ => Role::Write,
        };
        let result = self.parts().tokens.authenticate(request.headers(), needed);
        if !matches!(result, Ok(Caller::Token(_))) {
            let result = self.api.host_check.check(request.uri(), request.headers());
            result.map_err(Problem::from)?;
        }
        result.map_err(AdminProblem::Unauthorized)
    }
}

async fn readiness(State(state): State<Arc<AdminState>>) -> Response {
    state.api.health.readiness().await
}

/// Returns the OpenAPI document.
async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], include_str!("openapi.json")).into_response()
}

async fn metrics(State(state): State<Arc<AdminState>>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept);
    let metrics = &state.parts().metrics;
    metrics.refresh().await;
    let text = metrics.text(format);
    ([(CONTENT_TYPE, format.content_type())], text).into_response()
}
