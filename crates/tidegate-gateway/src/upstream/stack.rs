//! The stack of an account: `Retry(Fallback(RateLimit(leaf)))`, made once for each configuration.

use std::future::poll_fn;

use tidegate_llm::CallError;
use tidegate_llm::fallback::{Fallback, FallbackLayer};
use tidegate_llm::rate_limit::{Account, RateLimit, RateLimitLayer};
use tidegate_llm::retry::{Retry, RetryLayer};
use tower_layer::Layer as _;
use tower_service::Service;

use crate::request::call::{Call, UNKNOWN};
use crate::response::upstream_response::Reply;
use crate::upstream::attempt::Leaf;

/// A chain of fallbacks.
pub(crate) type Chain = FallbackLayer<Call, Reply>;

/// What answers the calls of one account.
pub(crate) struct Stack {
    limited: RateLimit<Leaf>,
    tried: Tried,
}

enum Tried {
    Alone(Retry<RateLimit<Leaf>>),
    Chained(Retry<Fallback<RateLimit<Leaf>, Call, Reply>>),
}

impl Stack {
    pub(crate) fn new(
        account: &Account,
        leaf: Leaf,
        retry: &RetryLayer,
        chain: Option<&Chain>,
    ) -> Self {
        let limited = limited(account, leaf);
        let tried = match chain {
            Some(chain) => Tried::Chained(retry.layer(chain.layer(limited.clone()))),
            None => Tried::Alone(retry.layer(limited.clone())),
        };
        Self { limited, tried }
    }

    /// Makes a call, with all attempts that it takes. What cannot be sent again has one.
    pub(crate) async fn call(&self, call: Call) -> Result<Reply, CallError> {
        if !call.sent.content.is_repeatable() {
            return made(self.limited.clone(), call).await;
        }
        match &self.tried {
            Tried::Alone(service) => made(service.clone(), call).await,
            Tried::Chained(service) => made(service.clone(), call).await,
        }
    }
}

/// An account around a leaf.
pub(crate) fn limited(account: &Account, leaf: Leaf) -> RateLimit<Leaf> {
    RateLimitLayer::new(account.clone(), UNKNOWN).layer(leaf)
}

async fn made<S>(mut service: S, call: Call) -> Result<Reply, CallError>
where
    S: Service<Call, Response = Reply, Error = CallError>,
{
    poll_fn(|context| service.poll_ready(context)).await?;
    service.call(call).await
}
