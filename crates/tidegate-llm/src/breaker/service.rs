//! The breaker's layers and services: one that admits calls and records their outcomes, and one that
//! refuses calls early.

use std::future;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use super::circuit::Circuit;
use crate::call::ready::{self, CallFuture};
use crate::call::{CallError, OutgoingCall};

/// Wraps services so that they refuse calls while a circuit is open.
#[derive(Clone, Debug)]
pub(crate) struct BreakerLayer {
    circuit: Circuit,
}

impl BreakerLayer {
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

/// A service that refuses calls while its circuit is open, and records the outcomes of others. Made
/// by a [`BreakerLayer`].
///
/// It belongs inside a rate limit: a call that waits for a permit says nothing about the provider.
///
/// The circuit is checked when a call is made, not when readiness is polled, so that callers do not
/// wait for a provider that is down.
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
    R: OutgoingCall,
{
    type Response = S::Response;
    type Error = CallError;
    type Future = CallFuture<S::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let admitted = match self.circuit.admit(request.options().deadline) {
            Ok(admitted) => admitted,
            Err(open) => {
                // Releases what the inner service reserved for this call.
                drop(ready::take_ready(&mut self.inner));
                return Box::pin(future::ready(Err(open)));
            }
        };
        let response = self.inner.call(request);
        Box::pin(async move {
            let result = response.await;
            admitted.settle(&result);
            result
        })
    }
}

/// Wraps services so that calls fail at once while a circuit is open, instead of waiting for a
/// permit first. Belongs outside a rate limit whose calls a [`BreakerLayer`] of the same circuit
/// admits.
#[derive(Clone, Debug)]
pub(crate) struct CircuitCheckLayer {
    circuit: Circuit,
}

impl CircuitCheckLayer {
    pub(crate) const fn new(circuit: Circuit) -> Self {
        Self { circuit }
    }
}

impl<S> Layer<S> for CircuitCheckLayer {
    type Service = CircuitCheck<S>;

    fn layer(&self, inner: S) -> CircuitCheck<S> {
        CircuitCheck { inner, circuit: self.circuit.clone() }
    }
}

/// A service that refuses calls while a circuit is open. Made by a [`CircuitCheckLayer`].
#[derive(Clone, Debug)]
pub(crate) struct CircuitCheck<S> {
    inner: S,
    circuit: Circuit,
}

impl<S, R> Service<R> for CircuitCheck<S>
where
    S: Service<R, Error = CallError> + Clone,
    S::Response: Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = CallError;
    type Future = CallFuture<S::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        match self.circuit.check() {
            Ok(()) => Box::pin(self.inner.call(request)),
            Err(open) => {
                // Releases what the inner service reserved for this call.
                drop(ready::take_ready(&mut self.inner));
                Box::pin(future::ready(Err(open)))
            }
        }
    }
}
