//! The rate-limit stage as a service: every outgoing call takes permits of its own.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};

use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use super::handler::RateLimitHandler;
use super::permits::RespondingPermits;
use super::planned::{Command, Planned};
use crate::call::ready::CallFuture;
use crate::call::{Call, CallError, CallResponse, OutgoingCall as _};

/// Service whose calls wait for the limits of their plan. A [`RateLimitHandler`] is the layer that
/// makes it.
///
/// Layers around it, such as [`RetryLayer`](crate::retry::RetryLayer), call it once for each
/// attempt, so that every attempt takes permits of its own and holds none during a delay. The wait
/// for them is taken off the deadline of the call. What a call did not use is given back when it
/// ends: unused tokens of a response; all tokens of a call that the provider refused; everything of
/// a call that was not sent. A call whose response did not arrive keeps its estimate.
pub struct PlanLimit<S, X = ()> {
    inner: S,
    limits: RateLimitHandler<Command<X>>,
}

impl<S, X> PlanLimit<S, X> {
    pub(super) const fn new(inner: S, limits: RateLimitHandler<Command<X>>) -> Self {
        Self { inner, limits }
    }
}

impl<S, X> Layer<S> for RateLimitHandler<Command<X>> {
    type Service = PlanLimit<S, X>;

    fn layer(&self, inner: S) -> PlanLimit<S, X> {
        PlanLimit::new(inner, self.clone())
    }
}

impl<S, X> Service<Planned<Command<X>>> for PlanLimit<S, X>
where
    S: Service<Call, Response = CallResponse, Error = CallError> + Clone + Send + 'static,
    S::Future: Send,
    X: Send + 'static,
{
    type Response = CallResponse;
    type Error = CallError;
    type Future = CallFuture<CallResponse>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        // The inner service is polled once there are permits.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, planned: Planned<Command<X>>) -> Self::Future {
        let mut inner = self.inner.clone();
        let request = self.limits.request(&planned);
        let mut call = planned.command.call;
        let began = Instant::now();
        Box::pin(async move {
            let Some(request) = request else {
                poll_fn(|context| inner.poll_ready(context)).await?;
                return inner.call(call).await;
            };
            let mut permits = request.acquire_for(call.options()).await?;
            // Until the call is made, nothing was sent.
            permits.set_refund_on_drop(true);
            poll_fn(|context| inner.poll_ready(context)).await?;
            call.options_mut().spend_since(began).map_err(|error| permits.no_permit(error))?;
            permits.set_refund_on_drop(false);
            let input = call.input_tokens();
            match inner.call(call).await {
                Ok(mut response) => {
                    response.keep(RespondingPermits::new(permits, input));
                    Ok(response)
                }
                Err(error) => {
                    permits.failed(&error);
                    Err(error)
                }
            }
        })
    }
}

impl<S: Clone, X> Clone for PlanLimit<S, X> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), limits: self.limits.clone() }
    }
}

impl<S: fmt::Debug, X> fmt::Debug for PlanLimit<S, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanLimit")
            .field("limits", &self.limits)
            .field("inner", &self.inner)
            .finish()
    }
}
