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
use super::choice::Choice;
use super::decision::decided::Decided;
use super::decision::decision_future::DecisionFuture;
use super::decision::pending_decision::{Answer, PendingDecision, Step};
use super::response::admitted::Admitted;
use super::response::future::{ResponseFuture, Waiting};
use super::response::render;
use super::settings::Shared;
use crate::head::Head;
use crate::refusal::Refusal;

/// A service whose requests are limited. Made by a [`LimitLayer`](super::LimitLayer).
#[derive(Clone, Debug)]
pub struct Limited<S> {
    inner: S,
    choice: Choice,
}

impl<S> Limited<S> {
    pub(crate) const fn new(inner: S, choice: Choice) -> Self {
        Self { inner, choice }
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
        let Self { inner, choice } = self;
        let Some(settings) = choice.settings(&request) else {
            return ResponseFuture::serving(inner, request, None);
        };
        let refuse = |refusal: &Refusal<'_>| render::response(settings, request.headers(), refusal);
        let mut pending = PendingDecision::of(&request);
        let verdict =
            match settings.first_step(&Head::of(&request, &settings.clients), &mut pending) {
                Step::Free if !settings.tells_handlers() => {
                    return ResponseFuture::serving(inner, request, None);
                }
                Step::Free => Ok(Admitted::told(Decided::nothing())),
                Step::Refuse(unkeyed) => settings.unkeyed(&pending, unkeyed, refuse),
                Step::Decide => match decided(settings, &pending) {
                    Some(answer) => settings.judge(pending, answer, refuse),
                    None => return wait(settings, pending, inner, request),
                },
            };
        match verdict {
            Ok(mut admitted) => {
                admitted.enter(&mut request);
                ResponseFuture::serving(inner, request, Some(admitted))
            }
            Err(response) => {
                // Drop the instance that was polled ready: it may hold a reservation for this
                // request.
                drop(give_up(inner));
                ResponseFuture::refused(response)
            }
        }
    }
}

/// Returns the decision of a local store; `None` on a shared one, which must be awaited.
#[inline]
fn decided(settings: &Shared, pending: &PendingDecision) -> Option<Answer> {
    if settings.is_local() { now_or_never(settings.decide(pending)) } else { None }
}

/// Parks a request until the store has decided.
fn wait<S, ReqBody, ResBody>(
    settings: &Shared,
    pending: PendingDecision,
    inner: &mut S,
    request: Request<ReqBody>,
) -> ResponseFuture<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
{
    let (deciding, ready) = (DecisionFuture::on(settings, pending), give_up(inner));
    ResponseFuture::deciding(Waiting { deciding, ready, request })
}

/// Takes the instance that was polled ready, and leaves a fresh clone in its place.
fn give_up<S: Clone>(service: &mut S) -> S {
    let other = service.clone();
    mem::replace(service, other)
}
