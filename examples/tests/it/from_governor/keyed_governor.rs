//! A limiter with keys, with governor. The page shows what is below this line.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

pub fn limiter() -> DefaultKeyedRateLimiter<IpAddr> {
    let rate = NonZeroU32::new(10).expect("not zero");
    let burst = NonZeroU32::new(20).expect("not zero");
    RateLimiter::keyed(Quota::per_second(rate).allow_burst(burst))
}

/// Returns how long the client has to wait, or `None` if the request is allowed.
pub fn check(limiter: &DefaultKeyedRateLimiter<IpAddr>, client: IpAddr) -> Option<Duration> {
    let denied = limiter.check_key(&client).err()?;
    Some(denied.wait_time_from(DefaultClock::default().now()))
}
