//! The retry service.

use std::task::{Context, Poll};

use tower_service::Service;

use super::layer::RetryLayer;
use crate::call::ready::{self, CallFuture};
use crate::call::{CallError, OutgoingCall};

/// A service that retries failed calls. Made by a [`RetryLayer`].
///
/// Waits for permits and delays between attempts share the maximum wait of a call
/// ([`CallOptions::max_wait`](crate::CallOptions)): the next permit may wait for what is left of it
/// and of the deadline. An attempt that is still in flight at the deadline is cancelled and has
/// timed out.
#[derive(Clone, Debug)]
pub struct Retry<S> {
    inner: S,
    layer: RetryLayer,
}

impl<S> Retry<S> {
    pub(super) const fn new(inner: S, layer: RetryLayer) -> Self {
        Self { inner, layer }
    }
}

impl<S, R> Service<R> for Retry<S>
where
    S: Service<R, Error = CallError> + Clone + Send + 'static,
    S::Response: Send,
    S::Future: Send,
    R: OutgoingCall + Clone + Send + 'static,
{
    type Response = S::Response;
    type Error = CallError;
    type Future = CallFuture<S::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The first attempt uses the service that is ready. Later attempts wait for readiness after
        // their delay, so nothing is reserved during the delay.
        let mut first = Some(ready::take_ready(&mut self.inner));
        let (inner, layer) = (self.inner.clone(), self.layer.clone());
        let attempt = move |request| {
            let (first, other) = (first.take(), inner.clone());
            async move {
                match first {
                    Some(mut ready) => ready.call(request).await,
                    None => ready::call(other, request).await,
                }
            }
        };
        Box::pin(async move { layer.run(request, attempt).await })
    }
}
