//! The layer and its service.

use std::future;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use super::circuit::Circuit;
use crate::call::ready::{self, Answering};
use crate::call::{CallError, Outgoing};

/// Makes services that leave a provider alone while its circuit is open.
#[derive(Clone, Debug)]
pub(crate) struct BreakerLayer {
    circuit: Circuit,
}

impl BreakerLayer {
    /// A layer on a circuit, which others may share.
    pub(crate) const fn new(circuit: Circuit) -> Self {
        Self { circuit }
    }
}

impl<S> Layer<S> for BreakerLayer {
    type Service = Breaker<S>;

    fn layer(&self, inner: S) -> Breaker<S> {
        Breaker { inner, circuit: self.circuit.clone() }
    }
}

/// A service that leaves its provider alone while its circuit is open. Made by a [`BreakerLayer`].
///
/// It is asked when a call is made and not when readiness is polled, so that nobody waits for a
/// provider that is down.
#[derive(Clone, Debug)]
pub(crate) struct Breaker<S> {
    inner: S,
    circuit: Circuit,
}

impl<S, R> Service<R> for Breaker<S>
where
    S: Service<R, Error = CallError> + Clone,
    S::Response: Send + 'static,
    S::Future: Send + 'static,
    R: Outgoing,
{
    type Response = S::Response;
    type Error = CallError;
    type Future = Answering<S::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let admitted = match self.circuit.admit(request.terms().deadline) {
            Ok(admitted) => admitted,
            Err(open) => {
                // What the service inside has reserved for this call is of no use to it.
                drop(ready::take_ready(&mut self.inner));
                return Box::pin(future::ready(Err(open)));
            }
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let result = answer.await;
            admitted.settle(&result);
            result
        })
    }
}
