//! Waiting for a token, with governor. The page shows what is below this line.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::{DefaultKeyedRateLimiter, Jitter, Quota, RateLimiter};

pub fn limiter() -> DefaultKeyedRateLimiter<&'static str> {
    let rate = NonZeroU32::new(100).expect("not zero");
    let burst = NonZeroU32::new(1).expect("not zero");
    RateLimiter::keyed(Quota::per_second(rate).allow_burst(burst))
}

pub async fn wait(limiter: &DefaultKeyedRateLimiter<&'static str>, key: &'static str) {
    limiter.until_key_ready_with_jitter(&key, Jitter::up_to(Duration::from_millis(5))).await;
}
