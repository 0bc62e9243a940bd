//! Services, and whether they are ready.
//!
//! A service that was polled until it was ready may hold a place for the call that follows, and a
//! clone of it is not ready.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;

use tower_service::Service;

use super::error::CallError;

/// A call under way.
pub(crate) type Answering<T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send>>;

/// Takes out the service that was polled until it was ready, and leaves one that was not.
pub(crate) fn take_ready<S: Clone>(service: &mut S) -> S {
    let other = service.clone();
    mem::replace(service, other)
}

/// Waits until a service is ready, and calls it.
pub(crate) async fn call<S, R>(mut service: S, request: R) -> Result<S::Response, S::Error>
where
    S: Service<R>,
{
    poll_fn(|context| service.poll_ready(context)).await?;
    service.call(request).await
}
