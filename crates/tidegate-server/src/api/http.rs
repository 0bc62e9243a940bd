//! The HTTP API: decisions for programs in any language.
//!
//! A request passes the host check, is read completely, becomes a list of charges or a batch of
//! lists, and is answered with one call to the engine. An invalid request is answered with a
//! problem document and spends nothing.

mod acquire;
mod admission;
mod audit;
mod batch;
mod decision_counter;
mod hints;
mod key_action;
mod not_found;
mod operation;
mod permit_request;
mod permits;
mod request;
mod response;
mod route;
mod store_errors;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use arc_swap::Guard;
use axum::BoxError;
use axum::body::{Body, Bytes};
use axum::response::IntoResponse as _;
use http::header::ALLOW;
use http::{HeaderValue, Request, Response};
use tidegate::{Jitter, StoreError};
use tidegate_core::StoreResponse;
use tidegate_http::host::HostCheck;
use tidegate_http::identity::ClientAddress;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::body::{self, MediaTypes, require_json};
use super::health;
use super::problem::Problem;
use crate::configuration::{ActiveConfig, Parts};
use crate::database::ChangeOrigin;
use crate::listener::accept_loop::AcceptSettings;
use crate::listener::bounds::Bounds;
use crate::listener::drain::StopSignal;
use crate::listener::files::OpenFiles;
use crate::listener::workers::Workers;
use crate::listener::{accept_loop, connection};
use crate::metrics::{AdmissionMetrics, LimitMetrics, ListenerMetrics};
use crate::permits::Permits;
use audit::{ActionOutcome, AuditThrottle, Auditor};
use hints::RetryHints;
pub(crate) use key_action::KeyAction;
use operation::{Operation, Verb};
use request::Reader;
use response::{ApiResponse, DenyStatus};
use route::{Endpoint, Route};
use store_errors::StoreErrors;

/// Shared state of all requests.
#[derive(Debug)]
pub(crate) struct HttpApi {
    config: Arc<ActiveConfig>,
    metrics: ListenerMetrics,
    /// Metrics of decisions on inline policies.
    inline: LimitMetrics,
    admissions: AdmissionMetrics,
    /// Adds jitter to the retry hints of denied callers.
    jitter: Jitter,
    host_check: HostCheck,
    bounds: Bounds,
    store_errors: StoreErrors,
    permits: Permits,
    audit_throttle: Arc<AuditThrottle>,
    /// Determines the client address of acquires.
    clients: ClientAddress,
    /// Set while the API is being served.
    stop: Option<StopSignal>,
}

impl HttpApi {
    pub(crate) fn new(config: Arc<ActiveConfig>, host_check: HostCheck, bounds: Bounds) -> Self {
        let all = &config.parts().metrics;
        let metrics = all.listener("http");
        let permits = Permits::new(bounds.connections);
        let stats = permits.clone();
        all.set_permits_source(move || stats.stats());
        let (inline, store_errors) = (metrics.inline(), StoreErrors::default());
        let proxies = config.current().plan.listen.trusted_proxies.value.clone();
        let clients = ClientAddress::from_either().trust(proxies);
        let (admissions, jitter) = (all.admission(), Jitter::new());
        Self {
            config,
            metrics,
            inline,
            admissions,
            jitter,
            host_check,
            bounds,
            store_errors,
            permits,
            audit_throttle: Arc::default(),
            clients,
            stop: None,
        }
    }

    /// Serves until the server stops, then finishes the requests in flight.
    pub(crate) async fn serve(
        mut self,
        listener: TcpListener,
        workers: Workers,
        files: OpenFiles,
        stop: StopSignal,
    ) {
        let (bounds, permits) = (self.bounds, self.permits.clone());
        self.stop = Some(stop.clone());
        let audit_throttle = self.audit_throttle.clone();
        let settings = AcceptSettings {
            capacity: bounds.capacity(&self.config.current().plan.listen),
            files,
            metrics: self.config.parts().metrics.connections("http"),
            refusal: connection::REFUSAL,
        };
        let api = Arc::new(self);
        let connection = {
            let stop = stop.clone();
            move |stream, peer| {
                let api = api.clone();
                let handler = move |request, peer| api.clone().handle(request, peer);
                connection::serve(stream, peer, handler, bounds, stop.clone())
            }
        };
        let expiry = permits.expire(stop.clone());
        let suppressed = audit_throttle.report(stop.clone());
        let accepting = accept_loop::serve(listener, settings, &workers, stop, connection);
        tokio::join!(accepting, expiry, suppressed);
        permits.abandon_all();
    }

    /// Handles a request: provider paths go to the gateway, all others are looked up here.
    pub(crate) async fn handle<B>(
        self: Arc<Self>,
        request: Request<B>,
        peer: IpAddr,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if let Err(error) = self.host_check.check(request.uri(), request.headers()) {
            return Problem::from(error).into_response();
        }
        let Parts { gateway, admission, .. } = self.config.parts();
        if gateway.serves(request.uri().path()) {
            let plan = &self.config.current().plan;
            if let Some(detail) = not_found::provider_root(request.uri().path(), plan) {
                return Problem::NotFound(detail).into_response();
            }
            // Boxed: the future of a call is large and would be moved with every request.
            return Box::pin(gateway.handle(request, peer)).await.map(Body::new);
        }
        match Route::find(request.method(), request.uri().path()) {
            Route::Endpoint(endpoint) => {
                let start = Instant::now();
                let response = self.execute(endpoint, request, peer).await;
                // Waiting is the purpose of an acquire, and not part of the decision time.
                if !matches!(endpoint, Endpoint::Acquire) {
                    self.metrics.record_duration(start.elapsed());
                }
                response.unwrap_or_else(|problem| {
                    self.log_store_error(&problem);
                    problem.into_response()
                })
            }
            Route::Pending => admission::pending(admission),
            Route::Health => health::liveness(),
            Route::MethodNotAllowed { allow } => {
                ([(ALLOW, HeaderValue::from_static(allow))], Problem::Method).into_response()
            }
            Route::NotFound => {
                let detail = not_found::detail(request.uri().path(), &self.config.current().plan);
                Problem::NotFound(detail).into_response()
            }
        }
    }

    /// Reads a request, calls the engine once, and responds.
    async fn execute<B>(
        &self,
        endpoint: Endpoint,
        request: Request<B>,
        peer: IpAddr,
    ) -> Result<Response<Body>, Problem>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        require_json(request.headers(), MediaTypes::Json)?;
        let deny = request::deny_status(request.uri().query())?;
        let peer = match endpoint {
            Endpoint::Acquire => self.clients.find(peer, request.headers()),
            _ => peer,
        };
        let body = body::read_all(request.into_body(), self.bounds.body).await?;
        let body = request::parse(&body)?;
        // One time and one configuration for the whole request, whatever changes meanwhile.
        let Parts { engine, admission, .. } = self.config.parts();
        let read_at = OnceLock::new();
        let wall = || *read_at.get_or_init(|| engine.wall_time());
        let current = match endpoint {
            // An acquire may wait for a long time, and a guard would slow down other readers.
            Endpoint::Acquire => Guard::from_inner(Guard::into_inner(self.config.current())),
            _ => self.config.current(),
        };
        let limits = &current.limits;
        let reader = Reader { limits, inline: &self.inline, wall: &wall, extra_keys: &[] };
        let percent = current.plan.api.jitter_percent.value;
        let hints = RetryHints { jitter: &self.jitter, percent };
        match endpoint {
            Endpoint::Operation(Verb::Settle) if permit_request::has_id(&body) => {
                self.settle_permit(&body).await
            }
            Endpoint::Operation(verb) => {
                let operation = Operation::read(verb, reader, &body)?;
                let items = operation.items();
                let answer = operation.request(&items, engine).await;
                self.permits.queues().nudge(&operation.refunded_buckets());
                Ok(self.respond(&operation, answer, (deny, peer), hints)?.into_response())
            }
            Endpoint::Batch => self.batch(reader, &body, (deny, peer), hints).await,
            Endpoint::Admit => {
                let metrics = (limits.as_ref(), &self.admissions);
                admission::admit(admission, metrics, &self.permits, &body, (deny, peer)).await
            }
            Endpoint::SetPending => {
                let note = ChangeOrigin::from_peer("http", peer);
                let auditor = Auditor::of(&note).throttled(&self.audit_throttle, peer);
                admission::set_pending(admission, &body, &auditor)
            }
            Endpoint::Acquire => self.acquire(reader, &body, (deny, peer)).await,
            Endpoint::Release => self.release(&body).await,
            Endpoint::Renew => self.renew(&body, deny),
        }
    }

    /// Returns whether the server is stopping.
    fn is_stopping(&self) -> bool {
        self.stop.as_ref().is_some_and(StopSignal::is_set)
    }

    /// Waits until the server stops.
    async fn stopping(&self) {
        match &self.stop {
            Some(stop) => stop.clone().wait().await,
            None => std::future::pending().await,
        }
    }

    /// Converts the result of an operation to a response. Writes manual key operations to the audit
    /// log.
    fn respond<'o>(
        &self,
        operation: &'o Operation<'_>,
        answer: Result<StoreResponse, StoreError>,
        (deny, peer): (DenyStatus, IpAddr),
        hints: RetryHints<'_>,
    ) -> Result<ApiResponse<response::Body<'o>>, Problem> {
        let response = operation.respond(answer, deny, hints);
        if operation.is_audited() {
            let note = ChangeOrigin::from_peer("http", peer);
            let auditor = Auditor::of(&note).throttled(&self.audit_throttle, peer);
            auditor.log(operation, ActionOutcome::of(&response));
        }
        response
    }

    /// Logs a problem if the store caused it.
    fn log_store_error(&self, problem: &Problem) {
        if let Some(error) = problem.store_error() {
            self.store_errors.log(error);
        }
    }
}
