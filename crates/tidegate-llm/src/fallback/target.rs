//! A provider to fall back to.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_providers::Provider;
use tower_service::Service;

use crate::call::CallError;
use crate::call::ready::{self, CallFuture};

/// A provider to fall back to, with the service that calls it. Cheap to clone.
pub(crate) struct Target<R, T> {
    provider: Provider,
    call: Arc<dyn Fn(R) -> CallFuture<T> + Send + Sync>,
}

impl<R, T> Target<R, T> {
    pub(crate) fn new<S>(provider: impl Into<Provider>, service: S) -> Self
    where
        S: Service<R, Response = T, Error = CallError> + Clone + Send + Sync + 'static,
        S::Future: Send,
        R: Send + 'static,
        T: 'static,
    {
        // The service in here is never polled, so it reserves nothing.
        let call = move |request| ready::call_boxed(service.clone(), request);
        Self { provider: provider.into(), call: Arc::new(call) }
    }

    pub(crate) fn from_fn<A>(
        provider: impl Into<Provider>,
        call: impl Fn(R) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = Result<T, CallError>> + Send + 'static,
    {
        let call = move |request| -> CallFuture<T> { Box::pin(call(request)) };
        Self { provider: provider.into(), call: Arc::new(call) }
    }

    pub(crate) const fn provider(&self) -> &Provider {
        &self.provider
    }

    pub(crate) fn call(&self, request: R) -> CallFuture<T> {
        (self.call)(request)
    }
}

impl<R, T> Service<R> for Target<R, T> {
    type Response = T;
    type Error = CallError;
    type Future = CallFuture<T>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        // Each call waits for readiness itself.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        (self.call)(request)
    }
}

impl<R, T> Clone for Target<R, T> {
    fn clone(&self) -> Self {
        Self { provider: self.provider.clone(), call: self.call.clone() }
    }
}

impl<R, T> fmt::Debug for Target<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.provider).finish()
    }
}
