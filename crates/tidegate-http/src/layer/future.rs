//! The response under way: being decided, being served, or refused.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::Body;
use super::deciding::Deciding;
use super::pass::Pass;
use super::render;
use crate::refusal::Refusal;

/// A request that waits for its decision, with the service that was ready for it.
pub(super) struct Waiting<S, ReqBody> {
    pub(super) deciding: Deciding,
    pub(super) ready: S,
    pub(super) request: Request<ReqBody>,
}

pin_project! {
    /// The response of a [`Limited`](super::Limited) service.
    pub struct ResponseFuture<S, ReqBody, ResBody>
    where
        S: Service<Request<ReqBody>>,
    {
        #[pin]
        state: State<S, S::Future, ReqBody, ResBody>,
    }
}

pin_project! {
    #[project = Projection]
    enum State<S, F, ReqBody, ResBody> {
        Deciding { waiting: Option<Box<Waiting<S, ReqBody>>> },
        Serving { #[pin] future: F, pass: Option<Pass> },
        Refused { response: Option<Response<Body<ResBody>>> },
    }
}

impl<S, ReqBody, ResBody> ResponseFuture<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    pub(super) fn deciding(waiting: Waiting<S, ReqBody>) -> Self {
        Self { state: State::Deciding { waiting: Some(Box::new(waiting)) } }
    }

    pub(super) const fn refused(response: Response<Body<ResBody>>) -> Self {
        Self { state: State::Refused { response: Some(response) } }
    }

    /// Lets a request in.
    #[inline]
    pub(super) fn serving(service: &mut S, request: Request<ReqBody>, pass: Option<Pass>) -> Self {
        Self { state: State::Serving { future: service.call(request), pass } }
    }
}

impl<S, ReqBody, ResBody> Future for ResponseFuture<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ResBody: http_body::Body,
{
    type Output = Result<Response<Body<ResBody>>, S::Error>;

    #[expect(clippy::panic, reason = "polling a future after its end is a mistake of the caller")]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                Projection::Deciding { waiting } => {
                    let Some(asked) = waiting.as_mut() else { panic!("polled after its end") };
                    let (case, answer) = ready!(Pin::new(&mut asked.deciding).poll(cx));
                    let Some(asked) = waiting.take() else { continue };
                    let Waiting { deciding, mut ready, mut request } = *asked;
                    let settings = &deciding.settings;
                    let asked = request.headers();
                    let refuse = |refusal: &Refusal<'_>| render::response(settings, asked, refusal);
                    match settings.judge(case, answer, refuse) {
                        Ok(mut pass) => {
                            pass.enter(&mut request);
                            let future = ready.call(request);
                            state.set(State::Serving { future, pass: Some(pass) });
                        }
                        Err(response) => return Poll::Ready(Ok(response)),
                    }
                }
                Projection::Serving { future, pass } => {
                    let mut response = match ready!(future.poll(cx)) {
                        Ok(response) => response,
                        Err(error) => {
                            drop(pass.take());
                            return Poll::Ready(Err(error));
                        }
                    };
                    let tab = pass.take().and_then(|pass| pass.leave(&mut response));
                    return Poll::Ready(Ok(response.map(|body| Body::served(body, tab))));
                }
                Projection::Refused { response } => {
                    let Some(response) = response.take() else { panic!("polled after its end") };
                    return Poll::Ready(Ok(response));
                }
            }
        }
    }
}

impl<S, ReqBody, ResBody> fmt::Debug for ResponseFuture<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Deciding { .. } => "ResponseFuture::Deciding",
            State::Serving { .. } => "ResponseFuture::Serving",
            State::Refused { .. } => "ResponseFuture::Refused",
        })
    }
}
