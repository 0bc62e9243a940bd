//! Acquire and release by one task that never has to wait, on a current-thread runtime.
//!
//! All have enough tokens, at a rate so low that they are never full again, as in `core`.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::Result;
use governor::clock::{MonotonicClock, ReasonablyRealtime};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use leaky_bucket::RateLimiter as LeakyBucket;
use tidegate::pacer::Pacer;
use tidegate::{Engine, Limiter, Policy};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::contender::{Contender, repeat};

/// Tokens in a full bucket.
const BURST: u32 = 1_000_000_000;
/// Maximum number of concurrent permits.
const SLOTS: u32 = 8;

/// The rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A pacer, and one claim.
    Ours,
    /// A pacer, and two claims on limiters of the same store.
    OursTwo,
    Semaphore,
    LeakyBucket,
    Governor,
    /// governor with the clock that the others use.
    GovernorSameClock,
}

impl Role {
    pub(super) const ALL: [Self; 6] = [
        Self::Ours,
        Self::OursTwo,
        Self::Semaphore,
        Self::LeakyBucket,
        Self::Governor,
        Self::GovernorSameClock,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "tidegate `Pacer`, 1 limit + concurrency",
            Self::OursTwo => "tidegate `Pacer`, 2 limits + concurrency",
            Self::Semaphore => "tokio `Semaphore`",
            Self::LeakyBucket => "leaky-bucket",
            Self::Governor => "governor as it comes",
            Self::GovernorSameClock => "governor, same clock",
        }
    }

    /// The work of one iteration.
    pub(super) const fn work(self) -> &'static str {
        match self {
            Self::Ours => "`acquire([claim])`, drop: a token of a key and a slot, slot given back",
            Self::OursTwo => "`acquire([claim, claim])`, drop: both or neither, and a slot",
            Self::Semaphore => "`acquire()`, drop: a slot, given back; no rate, no key",
            Self::LeakyBucket => "`acquire_one()`: a token; no key, no release",
            Self::Governor | Self::GovernorSameClock => {
                "`until_ready()`, direct: a token; no key, no release"
            }
        }
    }

    pub(super) const fn clock(self) -> &'static str {
        match self {
            Self::Ours | Self::OursTwo | Self::GovernorSameClock => "std `Instant`",
            Self::LeakyBucket => "tokio `Instant`",
            Self::Semaphore => "none",
            Self::Governor => "quanta (its default)",
        }
    }

    /// Creates the limiter with its own runtime.
    pub(super) fn enter(self) -> Result<Box<dyn Contender>> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        Ok(match self {
            Self::Ours => Box::new(Ours::one(runtime)?),
            Self::OursTwo => Box::new(Ours::two(runtime)?),
            Self::Semaphore => {
                let semaphore = Semaphore::new(SLOTS as usize);
                Box::new(Peer(runtime, semaphore))
            }
            Self::LeakyBucket => {
                let mut builder = LeakyBucket::builder();
                builder.initial(BURST as usize).max(BURST as usize);
                let bucket = builder.refill(1).interval(Duration::from_secs(1)).build();
                Box::new(Peer(runtime, bucket))
            }
            Self::Governor => Box::new(Peer(runtime, RateLimiter::direct(quota()))),
            Self::GovernorSameClock => {
                let limiter = RateLimiter::direct_with_clock(quota(), MonotonicClock);
                Box::new(Peer(runtime, limiter))
            }
        })
    }
}

fn quota() -> Quota {
    Quota::per_second(NonZeroU32::MIN)
        .allow_burst(NonZeroU32::new(BURST).unwrap_or(NonZeroU32::MAX))
}

/// A pacer with claims on some limiters.
struct Ours<const N: usize> {
    runtime: Runtime,
    pacer: Pacer,
    limiters: [Limiter; N],
}

impl Ours<1> {
    fn one(runtime: Runtime) -> Result<Self> {
        let engine = Engine::new();
        let limiters = [engine.limiter("requests", policy()?)?];
        Ok(Self { runtime, pacer: pacer(&engine), limiters })
    }
}

impl Ours<2> {
    fn two(runtime: Runtime) -> Result<Self> {
        let engine = Engine::new();
        let limiters =
            [engine.limiter("requests", policy()?)?, engine.limiter("tokens", policy()?)?];
        Ok(Self { runtime, pacer: pacer(&engine), limiters })
    }
}

fn policy() -> Result<Policy> {
    Ok(Policy::per_second(1).capacity(BURST.into()).build()?)
}

fn pacer(engine: &Engine) -> Pacer {
    Pacer::builder(engine).concurrency(SLOTS.into()).build()
}

impl<const N: usize> Contender for Ours<N> {
    fn decide(&self, keys: &[String], requests: u64) -> u64 {
        let key = keys.first().map_or("key", String::as_str);
        repeat(&self.runtime, requests, async || {
            let claims = self.limiters.each_ref().map(|limiter| limiter.charge(key, 1));
            self.pacer.acquire(claims).await.is_ok()
        })
    }
}

/// A peer, without keys.
struct Peer<T>(Runtime, T);

impl Contender for Peer<Semaphore> {
    fn decide(&self, _keys: &[String], requests: u64) -> u64 {
        repeat(&self.0, requests, async || self.1.acquire().await.is_ok())
    }
}

impl Contender for Peer<LeakyBucket> {
    fn decide(&self, _keys: &[String], requests: u64) -> u64 {
        repeat(&self.0, requests, async || {
            self.1.acquire_one().await;
            true
        })
    }
}

impl<C> Contender for Peer<RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<C::Instant>>>
where
    C: ReasonablyRealtime + Sync,
{
    fn decide(&self, _keys: &[String], requests: u64) -> u64 {
        repeat(&self.0, requests, async || {
            self.1.until_ready().await;
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_grants_everything_asked() {
        for role in Role::ALL {
            let contender = role.enter().unwrap();
            assert_eq!(contender.decide(&["a".to_owned()], 1_000), 1_000, "{}", role.name());
        }
    }
}
