//! Who is measured.

use anyhow::Result;

use super::{clocks, governors};
use crate::contender::Contender;
use crate::core::contenders::cell::Cell;
use crate::core::contenders::flat::{Batched, flat};
use crate::core::contenders::gate::{Alone, Listed};
use crate::core::contenders::ours::{Bank, Called, Many, Receipts, valve, valve_on};
use crate::core::contenders::peers::{Served, leaky_bucket, ratelimit};
use crate::core::contenders::terms::Terms;

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
    Valve,
    GovernorDirect,
    Ratelimit,
    LeakyBucket,
    Cell,
    ValveCached,
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

    /// One decision without a key, by the time of the moment.
    pub(in crate::core) const EXACT: [Self; 5] =
        [Self::Valve, Self::GovernorDirect, Self::Ratelimit, Self::LeakyBucket, Self::Cell];

    /// One decision without a key, by a time that is remembered.
    pub(in crate::core) const CACHED: [Self; 4] =
        [Self::ValveCached, Self::GovernorDirectCached, Self::LeakyBucketUnfair, Self::CellCached];

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
            Self::Valve | Self::ValveCached => "tidegate `DirectLimiter`",
            Self::GovernorDirect => "governor",
            Self::GovernorDirectCached => "governor, upkeep clock",
            Self::Ratelimit => "ratelimit",
            Self::LeakyBucket => "leaky-bucket",
            Self::LeakyBucketUnfair => "leaky-bucket, not fair",
            Self::Cell | Self::CellCached => "floor: bare CAS",
        }
    }

    /// An unused limiter with room for `keys`.
    pub(in crate::core) fn enter(self, keys: usize, terms: Terms) -> Result<Box<dyn Contender>> {
        let bank = || Bank::new(keys, terms);
        Ok(match self {
            Self::Spend => Box::new(Listed(bank()?)),
            Self::Take => Box::new(Listed(Receipts(bank()?))),
            Self::Limiter => Box::new(Listed(Called::new(keys, terms)?)),
            Self::Governor => Box::new(Listed(governors::as_it_comes(terms)?)),
            Self::GovernorFastHash => Box::new(Listed(governors::with_fast_hasher(terms)?)),
            Self::Flat => Box::new(Listed(flat(keys, terms))),
            Self::Many => Box::new(Many(bank()?)),
            Self::FlatBatched => Box::new(Batched(flat(keys, terms))),
            Self::Valve => Box::new(Alone(valve(terms)?)),
            Self::ValveCached => Box::new(Alone(valve_on(terms, clocks::cached()?)?)),
            Self::GovernorDirect => Box::new(Alone(governors::direct(terms)?)),
            Self::GovernorDirectCached => {
                Box::new(Alone(governors::direct_on_cached_clock(terms)?))
            }
            Self::Ratelimit => Box::new(Alone(ratelimit(terms)?)),
            Self::LeakyBucket => Box::new(Alone(leaky_bucket(terms, Served::InOrder))),
            Self::LeakyBucketUnfair => Box::new(Alone(leaky_bucket(terms, Served::InAnyOrder))),
            Self::Cell => Box::new(Alone(Cell::new(terms, clocks::exact()))),
            Self::CellCached => Box::new(Alone(Cell::new(terms, clocks::cached()?))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::contenders::terms::{FEW, MANY, NEW, ONCE, UNKEYED};
    use crate::keys::Keys;

    #[test]
    fn everybody_allows_everything_asked() {
        let keys = Keys::uniform(100, 1_000, 1);
        let roles = |roles: &[Role], terms: Terms| {
            for role in roles {
                let contender = role.enter(100, terms).unwrap();
                // Not a multiple of a batch.
                assert_eq!(contender.decide(&keys.orders[0], 2_503), 2_503, "{}", role.name());
            }
        };
        for terms in [FEW, MANY, NEW] {
            roles(&Role::KEYED, terms);
            roles(&Role::BATCH, terms);
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
