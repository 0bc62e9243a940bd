//! The layer: a permit for every attempt, and what comes of it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use super::account::Account;
use crate::answer::Answered;
use crate::call::Outgoing;
use crate::error::CallError;

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
    S: Service<R, Error = CallError> + Clone + Send + 'static,
    S::Response: Answered,
    S::Future: Send,
    R: Outgoing + Send + Sync + 'static,
{
    type Response = S::Response;
    type Error = CallError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, CallError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        // Whether what is inside is ready matters once there is a permit.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let Self { mut inner, account, model } = self.clone();
        Box::pin(async move {
            let model = request.model().map_or(model, |other| other.to_lowercase().into());
            let mut reservation = account.reserve(&model, &request).await?;
            let answer = match poll_fn(|context| inner.poll_ready(context)).await {
                Ok(()) => inner.call(request).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(mut answer) => {
                    reservation.heard(answer.told());
                    answer.keep(reservation);
                    Ok(answer)
                }
                Err(error) => Err(reservation.failed(error)),
            }
        })
    }
}
