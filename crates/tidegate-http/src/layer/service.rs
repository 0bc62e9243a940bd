//! The service that a layer produces: it decides first, then calls the inner service.
//!
//! Every decision is one future, `Settings::decide`. On a local store it is ready at the first
//! poll, so `call` polls it on the stack and allocates nothing for it. On a shared store it is
//! boxed, and waits together with the request and the service that was polled ready.

use std::mem;
use std::task::{Context, Poll};

use http::{Request, Response};
use tidegate::now_or_never;
use tower_service::Service;

use super::Body;
use super::decision::decision_future::DecisionFuture;
use super::decision::pending_decision::{PendingDecision, Precheck, StoreDecision};
use super::decision::request_decision::RequestDecision;
use super::response::admitted::Admitted;
use super::response::future::{ResponseFuture, WaitingRequest};
use super::response::render;
use super::settings::SharedSettings;
use super::settings_source::SettingsSource;
use crate::head::Head;
use crate::refusal::Refusal;

/// A service whose requests are limited. Made by a [`LimitLayer`](super::LimitLayer).
#[derive(Clone, Debug)]
pub struct Limited<S> {
    inner: S,
    source: SettingsSource,
}

impl<S> Limited<S> {
    pub(crate) const fn new(inner: S, source: SettingsSource) -> Self {
        Self { inner, source }
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for Limited<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    ResBody: http_body::Body,
{
    type Response = Response<Body<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody, ResBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        let Self { inner, source } = self;
        let Some(settings) = source.settings(&request) else {
            return ResponseFuture::serving(inner, request, None);
        };
        let refuse = |refusal: &Refusal<'_>| render::response(settings, request.headers(), refusal);
        let mut pending = PendingDecision::of(&request);
        let result = match settings.precheck(&Head::of(&request, &settings.clients), &mut pending) {
            Precheck::Admit if !settings.exposes_decisions() => {
                return ResponseFuture::serving(inner, request, None);
            }
            Precheck::Admit => Ok(Admitted::with_decision(RequestDecision::no_limits())),
            Precheck::Refuse(unkeyed) => settings.judge_unkeyed(&pending, unkeyed, refuse),
            Precheck::Decide => match decide_locally(settings, &pending) {
                Some(decision) => settings.judge(pending, decision, refuse),
                None => return park(settings, pending, inner, request),
            },
        };
        match result {
            Ok(mut admitted) => {
                admitted.attach_decision(&mut request);
                ResponseFuture::serving(inner, request, Some(admitted))
            }
            Err(response) => {
                // Drop the instance that was polled ready: it may hold a reservation for this
                // request.
                drop(take_ready(inner));
                ResponseFuture::refused(response)
            }
        }
    }
}

/// Returns the decision of a local store; `None` on a shared one, which must be awaited.
#[inline]
fn decide_locally(settings: &SharedSettings, pending: &PendingDecision) -> Option<StoreDecision> {
    if settings.is_local() { now_or_never(settings.decide(pending)) } else { None }
}

/// Parks a request until the store has decided.
fn park<S, ReqBody, ResBody>(
    settings: &SharedSettings,
    pending: PendingDecision,
    inner: &mut S,
    request: Request<ReqBody>,
) -> ResponseFuture<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
{
    let (deciding, ready) = (DecisionFuture::new(settings, pending), take_ready(inner));
    ResponseFuture::deciding(WaitingRequest { deciding, ready, request })
}

/// Takes the instance that was polled ready, and leaves a fresh clone in its place.
fn take_ready<S: Clone>(service: &mut S) -> S {
    let other = service.clone();
    mem::replace(service, other)
}
