//! Helpers for the readiness of tower services.
//!
//! A service that was polled to readiness may have reserved capacity for the next call; a clone of
//! it is not ready.

use std::any::Any;
use std::future::{pending, poll_fn};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

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

/// Calls a service once it is ready, as a boxed future. If the service is ready and its future is
/// boxed already, as that of an adapter is, this allocates nothing.
pub(crate) fn call_boxed<S, R, T>(mut service: S, request: R) -> CallFuture<T>
where
    S: Service<R, Response = T, Error = CallError> + Send + 'static,
    S::Future: Send + 'static,
    R: Send + 'static,
    T: 'static,
{
    match service.poll_ready(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(())) => boxed(service.call(request)),
        Poll::Ready(Err(error)) => Box::pin(async move { Err(error) }),
        // The future polls it again, with the waker of its task.
        Poll::Pending => Box::pin(call(service, request)),
    }
}

/// Boxes a future, unless it is a boxed one.
fn boxed<F, T>(future: F) -> CallFuture<T>
where
    F: Future<Output = Result<T, CallError>> + Send + 'static,
    T: 'static,
{
    let mut future = Some(future);
    let any: &mut dyn Any = &mut future;
    if let Some(boxed) = any.downcast_mut::<Option<CallFuture<T>>>().and_then(Option::take) {
        return boxed;
    }
    match future {
        Some(future) => Box::pin(future),
        // Only the branch above takes it.
        None => Box::pin(pending()),
    }
}
