//! The layer: a permit for every attempt, and what comes of it.

use std::sync::Arc;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use super::account::Account;
use crate::call::ready::{self, Answering};
use crate::call::{Answer, CallError, Outgoing};

/// Gives calls of a model the limits of an account.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    account: Account,
    model: Arc<str>,
}

impl RateLimitLayer {
    /// For calls of one model, unless a call names another.
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

/// A service whose calls wait for a permit of an [`Account`]. Made by [`RateLimitLayer`].
///
/// The call itself is passed on as it is, and so is its answer.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    account: Account,
    model: Arc<str>,
}

impl<S> RateLimit<S> {
    /// The account whose permits these are.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// What is called with a permit.
    #[must_use]
    pub const fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, R> Service<R> for RateLimit<S>
where
    S: Service<R, Response = Answer, Error = CallError> + Clone + Send + 'static,
    S::Future: Send,
    R: Outgoing + Send + Sync + 'static,
{
    type Response = Answer;
    type Error = CallError;
    type Future = Answering<Answer>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        // Whether what is inside is ready matters once there is a permit.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let Self { inner, account, model } = self.clone();
        Box::pin(async move {
            let name = request.model().unwrap_or(&model);
            let mut reservation = account.reserve(name, &request).await?;
            match ready::call(inner, request).await {
                Ok(mut answer) => {
                    reservation.heard(answer.reported_limits());
                    answer.keep(reservation);
                    Ok(answer)
                }
                Err(error) => Err(reservation.failed(error)),
            }
        })
    }
}
