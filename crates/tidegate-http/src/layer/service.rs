//! The service that a layer makes: it decides, and only then calls the service inside.
//!
//! There is one future for a decision, `Settings::decide`. On a store in process it is ready at the
//! first poll: it is polled in `call`, on the stack, and nothing is allocated for it. On a shared
//! store it is boxed, and the request is set aside together with the service that was ready.

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
                // What the service inside has reserved for this request is of no use to it.
                drop(give_up(inner));
                ResponseFuture::refused(response)
            }
        }
    }
}

/// The decision of a store in process; a shared one was not asked.
#[inline]
fn decided(settings: &Shared, pending: &PendingDecision) -> Option<Answer> {
    if settings.is_local() { now_or_never(settings.decide(pending)) } else { None }
}

/// Sets a request aside until the store has answered.
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

/// Takes out the service that was polled until it was ready, and leaves one that was not.
fn give_up<S: Clone>(service: &mut S) -> S {
    let other = service.clone();
    mem::replace(service, other)
}
