//! Helpers for the readiness of tower services.
//!
//! A service that was polled to readiness may have reserved capacity for the next call; a clone of
//! it is not ready.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;

use tower_service::Service;

use super::error::CallError;

/// Future of a call in progress.
pub(crate) type CallFuture<T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send>>;

/// Takes the service that is ready, and leaves a clone that is not.
pub(crate) fn take_ready<S: Clone>(service: &mut S) -> S {
    let other = service.clone();
    mem::replace(service, other)
}

/// Waits until a service is ready, then calls it.
pub(crate) async fn call<S, R>(mut service: S, request: R) -> Result<S::Response, S::Error>
where
    S: Service<R>,
{
    poll_fn(|context| service.poll_ready(context)).await?;
    service.call(request).await
}
