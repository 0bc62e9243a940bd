//! The measured limiters.

use anyhow::Result;

use super::{clocks, governors};
use crate::contender::Contender;
use crate::core::contenders::cell::Cell;
use crate::core::contenders::flat::{Batched, flat};
use crate::core::contenders::gate::{CacheLineAligned, KeysInOrder};
use crate::core::contenders::ours::{
    LimiterContender, Many, Receipts, StoreContender, valve, valve_on,
};
use crate::core::contenders::peers::{Served, leaky_bucket, ratelimit};
use crate::core::contenders::policy::BenchPolicy;

/// The columns of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Role {
    Spend,
    Take,
    Limiter,
    Governor,
    GovernorFastHash,
    Flat,
    Many,
    FlatBatched,
    Direct,
    GovernorDirect,
    Ratelimit,
    LeakyBucket,
    Cell,
    DirectCached,
    GovernorDirectCached,
    LeakyBucketUnfair,
    CellCached,
}

impl Role {
    /// One decision on a key.
    pub(in crate::core) const KEYED: [Self; 6] = [
        Self::Spend,
        Self::Take,
        Self::Limiter,
        Self::Governor,
        Self::GovernorFastHash,
        Self::Flat,
    ];

    /// Several decisions at once.
    pub(in crate::core) const BATCH: [Self; 2] = [Self::Many, Self::FlatBatched];

    /// One decision without a key, with an exact clock.
    pub(in crate::core) const EXACT: [Self; 5] =
        [Self::Direct, Self::GovernorDirect, Self::Ratelimit, Self::LeakyBucket, Self::Cell];

    /// One decision without a key, with a cached clock.
    pub(in crate::core) const CACHED: [Self; 4] =
        [Self::DirectCached, Self::GovernorDirectCached, Self::LeakyBucketUnfair, Self::CellCached];

    pub(in crate::core) const fn name(self) -> &'static str {
        match self {
            Self::Spend => "tidegate `spend_one`",
            Self::Take => "tidegate `take_one`, with a receipt",
            Self::Limiter => "tidegate `Limiter::take`",
            Self::Governor => "governor as it comes",
            Self::GovernorFastHash => "governor, fast hasher",
            Self::Flat => "floor: flat table",
            Self::Many => "tidegate `take_many`",
            Self::FlatBatched => "floor: flat table, prefetched",
            Self::Direct | Self::DirectCached => "tidegate `DirectLimiter`",
            Self::GovernorDirect => "governor",
            Self::GovernorDirectCached => "governor, upkeep clock",
            Self::Ratelimit => "ratelimit",
            Self::LeakyBucket => "leaky-bucket",
            Self::LeakyBucketUnfair => "leaky-bucket, not fair",
            Self::Cell | Self::CellCached => "floor: bare CAS",
        }
    }

    /// A new limiter with capacity for `keys`.
    pub(in crate::core) fn enter(
        self,
        keys: usize,
        policy: BenchPolicy,
    ) -> Result<Box<dyn Contender>> {
        let bank = || StoreContender::new(keys, policy);
        Ok(match self {
            Self::Spend => Box::new(KeysInOrder(bank()?)),
            Self::Take => Box::new(KeysInOrder(Receipts(bank()?))),
            Self::Limiter => Box::new(KeysInOrder(LimiterContender::new(keys, policy)?)),
            Self::Governor => Box::new(KeysInOrder(governors::as_it_comes(policy)?)),
            Self::GovernorFastHash => Box::new(KeysInOrder(governors::with_fast_hasher(policy)?)),
            Self::Flat => Box::new(KeysInOrder(flat(keys, policy))),
            Self::Many => Box::new(Many(bank()?)),
            Self::FlatBatched => Box::new(Batched(flat(keys, policy))),
            Self::Direct => Box::new(CacheLineAligned(valve(policy)?)),
            Self::DirectCached => Box::new(CacheLineAligned(valve_on(policy, clocks::cached()?)?)),
            Self::GovernorDirect => Box::new(CacheLineAligned(governors::direct(policy)?)),
            Self::GovernorDirectCached => {
                Box::new(CacheLineAligned(governors::direct_on_cached_clock(policy)?))
            }
            Self::Ratelimit => Box::new(CacheLineAligned(ratelimit(policy)?)),
            Self::LeakyBucket => Box::new(CacheLineAligned(leaky_bucket(policy, Served::InOrder))),
            Self::LeakyBucketUnfair => {
                Box::new(CacheLineAligned(leaky_bucket(policy, Served::InAnyOrder)))
            }
            Self::Cell => Box::new(CacheLineAligned(Cell::new(policy, clocks::exact()))),
            Self::CellCached => Box::new(CacheLineAligned(Cell::new(policy, clocks::cached()?))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::contenders::policy::{FEW, MANY, NEW, ONCE, UNKEYED};
    use crate::keys::Keys;

    #[test]
    fn everybody_allows_everything_asked() {
        let keys = Keys::uniform(100, 1_000, 1);
        let roles = |roles: &[Role], policy: BenchPolicy| {
            for role in roles {
                let contender = role.enter(100, policy).unwrap();
                // Not a multiple of a batch.
                assert_eq!(contender.decide(&keys.orders[0], 2_503), 2_503, "{}", role.name());
            }
        };
        for policy in [FEW, MANY, NEW] {
            roles(&Role::KEYED, policy);
            roles(&Role::BATCH, policy);
        }
        roles(&Role::EXACT, UNKEYED);
        roles(&Role::CACHED, UNKEYED);
    }

    #[test]
    fn everybody_denies_a_key_that_has_spent_its_token() {
        let keys = Keys::uniform(100, 1_000, 1);
        for role in Role::KEYED.into_iter().chain(Role::BATCH) {
            let contender = role.enter(100, ONCE).unwrap();
            assert_eq!(contender.decide(&keys.all, 100), 100, "{}", role.name());
            assert_eq!(contender.decide(&keys.orders[0], 2_503), 0, "{}", role.name());
        }
    }

    #[test]
    fn everybody_denies_when_the_only_token_is_spent() {
        for role in Role::EXACT.into_iter().chain(Role::CACHED) {
            let contender = role.enter(0, ONCE).unwrap();
            assert_eq!(contender.decide(&[], 100), 1, "{}", role.name());
            assert_eq!(contender.decide(&[], 100), 0, "{}", role.name());
        }
    }
}
