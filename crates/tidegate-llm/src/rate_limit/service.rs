//! The layer: a permit for every attempt, and what comes of it.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use super::account::Account;
use crate::call::ready::{self, Answering};
use crate::call::{Answered, CallError, Outgoing};

impl Account {
    /// Makes one attempt of a call under the limits of the account: waits for a permit, sends the
    /// call, and settles the permit with the failure or hands it to the answer. The model is that of
    /// calls that name none.
    ///
    /// # Errors
    /// When there is no permit, or the attempt fails.
    pub async fn run<R, T, A>(
        &self,
        model: &str,
        request: R,
        send: impl FnOnce(R) -> A,
    ) -> Result<T, CallError>
    where
        R: Outgoing,
        T: Answered,
        A: Future<Output = Result<T, CallError>>,
    {
        let mut reservation = {
            let model = lower_case(request.model().unwrap_or(model));
            self.reserve(&model, &request).await?
        };
        match send(request).await {
            Ok(mut answer) => {
                reservation.heard(answer.told());
                answer.keep(reservation);
                Ok(answer)
            }
            Err(error) => Err(reservation.failed(error)),
        }
    }
}

/// A name in lower case, which most are already.
fn lower_case(name: &str) -> Cow<'_, str> {
    if name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return name.into();
    }
    name.to_lowercase().into()
}

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
    type Future = Answering<S::Response>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        // Whether what is inside is ready matters once there is a permit.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let Self { inner, account, model } = self.clone();
        let send = |request| ready::call(inner, request);
        Box::pin(async move { account.run(&model, request, send).await })
    }
}
