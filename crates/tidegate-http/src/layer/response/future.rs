//! The response future: deciding, serving, or refused.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::admitted::Admitted;
use super::body::Body;
use super::render;
use crate::layer::decision::decision_future::DecisionFuture;
use crate::refusal::Refusal;

/// A request that waits for its decision, with the service that was polled ready for it.
pub(crate) struct WaitingRequest<S, ReqBody> {
    pub(crate) deciding: DecisionFuture,
    pub(crate) ready: S,
    pub(crate) request: Request<ReqBody>,
}

pin_project! {
    /// The response future of a [`Limited`](crate::layer::Limited) service.
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
        Deciding { waiting: Option<Box<WaitingRequest<S, ReqBody>>> },
        Serving { #[pin] future: F, admitted: Option<Admitted> },
        Refused { response: Option<Response<Body<ResBody>>> },
    }
}

impl<S, ReqBody, ResBody> ResponseFuture<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    pub(crate) fn deciding(waiting: WaitingRequest<S, ReqBody>) -> Self {
        Self { state: State::Deciding { waiting: Some(Box::new(waiting)) } }
    }

    pub(crate) const fn refused(response: Response<Body<ResBody>>) -> Self {
        Self { state: State::Refused { response: Some(response) } }
    }

    /// Calls the inner service with an admitted request.
    #[inline]
    pub(crate) fn serving(
        service: &mut S,
        request: Request<ReqBody>,
        admitted: Option<Admitted>,
    ) -> Self {
        Self { state: State::Serving { future: service.call(request), admitted } }
    }
}

impl<S, ReqBody, ResBody> Future for ResponseFuture<S, ReqBody, ResBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ResBody: http_body::Body,
{
    type Output = Result<Response<Body<ResBody>>, S::Error>;

    #[expect(clippy::panic, reason = "polling a completed future is a bug in the caller")]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                Projection::Deciding { waiting } => {
                    let Some(parked) = waiting.as_mut() else { panic!("polled after completion") };
                    let (pending, decision) = ready!(Pin::new(&mut parked.deciding).poll(cx));
                    let Some(parked) = waiting.take() else { continue };
                    let WaitingRequest { deciding, mut ready, mut request } = *parked;
                    let settings = &deciding.settings;
                    let headers = request.headers();
                    let refuse =
                        |refusal: &Refusal<'_>| render::response(settings, headers, refusal);
                    match settings.judge(pending, decision, refuse) {
                        Ok(mut admitted) => {
                            admitted.attach_decision(&mut request);
                            let future = ready.call(request);
                            state.set(State::Serving { future, admitted: Some(admitted) });
                        }
                        Err(response) => return Poll::Ready(Ok(response)),
                    }
                }
                Projection::Serving { future, admitted } => {
                    let mut response = match ready!(future.poll(cx)) {
                        Ok(response) => response,
                        Err(error) => {
                            drop(admitted.take());
                            return Poll::Ready(Err(error));
                        }
                    };
                    let settlement = admitted
                        .take()
                        .and_then(|admitted| admitted.finish_response(&mut response));
                    return Poll::Ready(Ok(response.map(|body| Body::served(body, settlement))));
                }
                Projection::Refused { response } => {
                    let Some(response) = response.take() else { panic!("polled after completion") };
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
