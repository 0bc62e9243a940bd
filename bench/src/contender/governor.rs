//! governor, keyed by strings on its default map with its default hasher.

use std::fmt;
use std::num::NonZeroU32;

use governor::clock::{Clock, DefaultClock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};

use super::{BURST, Contender, RATE, go_round};

type Limiter<C> =
    RateLimiter<String, DashMapStateStore<String>, C, NoOpMiddleware<<C as Clock>::Instant>>;

pub(super) struct Governor<C: Clock>(Limiter<C>);

impl Governor<DefaultClock> {
    /// As its documentation shows it.
    pub(super) fn as_it_comes() -> Self {
        Self(RateLimiter::keyed(quota()))
    }
}

impl Governor<MonotonicClock> {
    /// With the clock of the standard library.
    pub(super) fn with_std_clock() -> Self {
        Self(RateLimiter::dashmap_with_clock(quota(), MonotonicClock))
    }
}

impl<C: Clock + Sync> Contender for Governor<C> {
    fn decide(&self, keys: &[String], requests: u64) -> u64 {
        go_round(keys, requests, |key| self.0.check_key(key).is_ok())
    }
}

impl<C: Clock> fmt::Debug for Governor<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Governor")
    }
}

fn quota() -> Quota {
    let number = |value| NonZeroU32::new(value).unwrap_or(NonZeroU32::MIN);
    Quota::per_second(number(RATE)).allow_burst(number(BURST))
}
