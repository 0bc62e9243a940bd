//! governor, with keys and without.

use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use governor::clock::{Clock, DefaultClock, QuantaUpkeepClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{DefaultKeyedRateLimiter, RateLimiter};

use crate::core::contenders::clocks::RESOLUTION;
use crate::core::contenders::gate::{KeyedLimiter, UnkeyedLimiter};
use crate::core::contenders::policy::BenchPolicy;

/// Keyed by strings on its default map, with any clock and hasher.
pub(in crate::core) type Keyed<C, S> =
    RateLimiter<String, DashMapStateStore<String, S>, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// One bucket, with any clock.
pub(in crate::core) type Direct<C> =
    RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// As in its documentation.
pub(in crate::core) fn as_it_comes(policy: BenchPolicy) -> Result<DefaultKeyedRateLimiter<String>> {
    Ok(RateLimiter::keyed(policy.quota()?))
}

/// With a hasher several times faster than that of the standard library.
pub(in crate::core) fn with_fast_hasher(
    policy: BenchPolicy,
) -> Result<Keyed<DefaultClock, foldhash::fast::RandomState>> {
    let hasher = foldhash::fast::RandomState::default();
    Ok(RateLimiter::dashmap_with_hasher(policy.quota()?, hasher))
}

/// Without keys, as in its documentation.
pub(in crate::core) fn direct(policy: BenchPolicy) -> Result<Direct<DefaultClock>> {
    Ok(RateLimiter::direct(policy.quota()?))
}

/// Without keys, on its cached clock.
pub(in crate::core) fn direct_on_cached_clock(
    policy: BenchPolicy,
) -> Result<Direct<QuantaUpkeepClock>> {
    // A process can have only one such clock.
    static CLOCK: Mutex<Option<QuantaUpkeepClock>> = Mutex::new(None);
    let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let clock = match &mut *clock {
        Some(clock) => clock,
        vacant => vacant.insert(QuantaUpkeepClock::from_interval(RESOLUTION)?),
    };
    Ok(RateLimiter::direct_with_clock(policy.quota()?, clock.clone()))
}

impl<C: Clock + Sync, S: BuildHasher + Clone + Sync + Send> KeyedLimiter for Keyed<C, S> {
    #[inline]
    fn allow(&self, key: &String) -> bool {
        self.check_key(key).is_ok()
    }
}

impl<C: Clock + Sync> UnkeyedLimiter for Direct<C> {
    #[inline]
    fn allow(&self) -> bool {
        self.check().is_ok()
    }
}
