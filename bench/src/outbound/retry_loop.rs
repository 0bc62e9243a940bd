//! Hand-written alternatives: a retry loop, with or without a token bucket.
//!
//! Both follow good practice: the loop has jitter and honours the delay that the provider requests,
//! and the bucket applies to every attempt, not only to the first one.

use std::sync::Arc;
use std::time::Duration;

use leaky_bucket::RateLimiter;
use tidegate_llm::{Call, CallError, CallResponse};
use tokio::time::sleep;
use tower::ServiceExt as _;

use super::network::Dice;
use super::role::Model;

/// Number of retries, first delay, and maximum delay.
const RETRIES: u32 = 8;
const BASE: Duration = Duration::from_secs(1);
const CAP: Duration = Duration::from_secs(60);

/// A loop around a model.
#[derive(Clone)]
pub(super) struct RetryLoop {
    model: Model,
    dice: Dice,
    bucket: Option<Arc<RateLimiter>>,
}

impl RetryLoop {
    pub(super) const fn new(model: Model, dice: Dice) -> Self {
        Self { model, dice, bucket: None }
    }

    /// Adds a token bucket with this rate and a capacity of one minute, initially full.
    pub(super) fn paced(mut self, requests_per_minute: u32) -> Self {
        let minute = requests_per_minute as usize;
        // Refills one token at a time, which is smoother than once per second.
        let interval = Duration::from_secs(60) / requests_per_minute.max(1);
        let mut builder = RateLimiter::builder();
        builder.initial(minute).max(minute).refill(1).interval(interval);
        self.bucket = Some(Arc::new(builder.build()));
        self
    }

    /// Tries until there is a response, or no retry is left.
    pub(super) async fn call(self, call: Call) -> Result<CallResponse, CallError> {
        let (mut retries, mut longest) = (0, BASE);
        loop {
            if let Some(bucket) = &self.bucket {
                bucket.acquire_one().await;
            }
            let error = match self.model.clone().oneshot(call.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) if retries == RETRIES || !error.class().is_retryable() => {
                    return Err(error);
                }
                Err(error) => error,
            };
            let asked = error.retry_after().unwrap_or_default();
            sleep(self.dice.part_of(longest).max(asked)).await;
            (retries, longest) = (retries + 1, (longest * 2).min(CAP));
        }
    }
}
