//! The layer and service that acquire a reservation for every attempt.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use super::account::Account;
use crate::call::ready::{self, CallFuture};
use crate::call::{CallError, CallResponse, OutgoingCall};

/// Layer that applies the limits of an account to calls of a model.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    account: Account,
    model: Arc<str>,
}

impl RateLimitLayer {
    /// Creates a layer for calls of `model`; a call may name another one.
    #[must_use]
    pub fn new(account: Account, model: &str) -> Self {
        Self { account, model: model.to_lowercase().into() }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { inner, account: self.account.clone(), model: self.model.clone() }
    }
}

/// Service whose calls wait for a reservation of an [`Account`]. Created by [`RateLimitLayer`].
///
/// Calls and responses are passed on unchanged.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    account: Account,
    model: Arc<str>,
}

impl<S> RateLimit<S> {
    /// Returns the account.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the inner service.
    #[must_use]
    pub const fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, R> Service<R> for RateLimit<S>
where
    S: Service<R, Response = CallResponse, Error = CallError> + Clone + Send + 'static,
    S::Future: Send,
    R: OutgoingCall + Send + Sync + 'static,
{
    type Response = CallResponse;
    type Error = CallError;
    type Future = CallFuture<CallResponse>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        // The inner service is polled once there is a reservation.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: R) -> Self::Future {
        let Self { inner, account, model } = self.clone();
        Box::pin(async move {
            let began = Instant::now();
            let name = request.model().unwrap_or(&model);
            let mut reservation = account.reserve(name, &request).await?;
            if let Err(source) = request.options_mut().spend_since(began) {
                let (provider, limited_by) = (account.provider().clone(), reservation.limited_by());
                let error = CallError::NoPermit { provider, source, limited_by, after: None };
                return Err(reservation.failed(error));
            }
            match ready::call(inner, request).await {
                Ok(mut response) => {
                    reservation.response_started(response.reported_limits());
                    response.keep(reservation);
                    Ok(response)
                }
                Err(error) => Err(reservation.failed(error)),
            }
        })
    }
}
