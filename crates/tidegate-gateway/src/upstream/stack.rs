//! The stack of an account: `Retry(Fallback(RateLimit(attempt)))`, made once for each configuration.

use std::future::poll_fn;

use tidegate_llm::CallError;
use tidegate_llm::fallback::{Fallback, FallbackLayer};
use tidegate_llm::rate_limit::{Account, RateLimit, RateLimitLayer};
use tidegate_llm::retry::{Retry, RetryLayer};
use tower_layer::Layer as _;
use tower_service::Service;

use crate::request::call::{Call, UNKNOWN};
use crate::response::upstream_response::UpstreamResponse;
use crate::upstream::attempt::Attempt;

/// A chain of fallbacks.
pub(crate) type Chain = FallbackLayer<Call, UpstreamResponse>;

/// The stack of services for the calls of one account.
pub(crate) struct Stack {
    limited: RateLimit<Attempt>,
    tried: Tried,
}

enum Tried {
    Alone(Retry<RateLimit<Attempt>>),
    Chained(Retry<Fallback<RateLimit<Attempt>, Call, UpstreamResponse>>),
}

impl Stack {
    pub(crate) fn new(
        account: &Account,
        attempt: Attempt,
        retry: &RetryLayer,
        chain: Option<&Chain>,
    ) -> Self {
        let limited = limited(account, attempt);
        let tried = match chain {
            Some(chain) => Tried::Chained(retry.layer(chain.layer(limited.clone()))),
            None => Tried::Alone(retry.layer(limited.clone())),
        };
        Self { limited, tried }
    }

    /// Makes a call, with retries and fallbacks. A streamed body can be sent once, so it has one
    /// attempt.
    pub(crate) async fn call(&self, call: Call) -> Result<UpstreamResponse, CallError> {
        if !call.sent.content.is_repeatable() {
            return made(self.limited.clone(), call).await;
        }
        match &self.tried {
            Tried::Alone(service) => made(service.clone(), call).await,
            Tried::Chained(service) => made(service.clone(), call).await,
        }
    }
}

/// The limits of an account around an attempt.
pub(crate) fn limited(account: &Account, attempt: Attempt) -> RateLimit<Attempt> {
    RateLimitLayer::new(account.clone(), UNKNOWN).layer(attempt)
}

async fn made<S>(mut service: S, call: Call) -> Result<UpstreamResponse, CallError>
where
    S: Service<Call, Response = UpstreamResponse, Error = CallError>,
{
    poll_fn(|context| service.poll_ready(context)).await?;
    service.call(call).await
}
