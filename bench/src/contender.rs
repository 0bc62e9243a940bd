//! Who is measured. All decide by the same policy over the same keys in the same order.
//!
//! The policy is one token per second with a burst of a thousand million: every decision is a
//! yes and writes, and no key becomes full again, so that nobody may forget one meanwhile.

mod floor;
mod governor;
mod ours;

use std::hint::black_box;

use anyhow::Result;
use tokio::runtime::Runtime;
use tokio::task::coop::unconstrained;

/// Tokens per second.
const RATE: u32 = 1;
/// Tokens in a full bucket.
const BURST: u32 = 1_000_000_000;

/// A limiter under test. The loop is inside, so that calls in it are direct.
pub(crate) trait Contender: Sync {
    /// Decides about the keys in turn, `requests` times in all; returns how many were allowed.
    fn decide(&self, keys: &[String], requests: u64) -> u64;
}

/// The roles in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The in-process store of Tidegate.
    Ours,
    /// governor as its documentation shows it.
    Governor,
    /// The same with the clock that the others use.
    GovernorSameClock,
    /// A table without expiry, growth or collision handling: a bound, not a product.
    Floor,
}

impl Role {
    pub(crate) const ALL: [Self; 4] =
        [Self::Ours, Self::Governor, Self::GovernorSameClock, Self::Floor];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "tidegate-memory",
            Self::Governor => "governor as it comes",
            Self::GovernorSameClock => "governor, same clock",
            Self::Floor => "floor: flat table",
        }
    }

    pub(crate) const fn clock(self) -> &'static str {
        match self {
            Self::Ours | Self::GovernorSameClock | Self::Floor => "std `Instant`",
            Self::Governor => "quanta (its default)",
        }
    }

    /// An empty limiter with room for `keys`.
    pub(crate) fn enter(self, keys: usize) -> Result<Box<dyn Contender>> {
        Ok(match self {
            Self::Ours => Box::new(ours::Ours::new()?),
            Self::Governor => Box::new(governor::Governor::as_it_comes()),
            Self::GovernorSameClock => Box::new(governor::Governor::with_std_clock()),
            Self::Floor => Box::new(floor::Floor::new(keys)),
        })
    }
}

/// Goes round the keys and counts what was allowed.
#[inline]
pub(crate) fn go_round(
    keys: &[String],
    requests: u64,
    mut allow: impl FnMut(&String) -> bool,
) -> u64 {
    let mut allowed = 0;
    let mut left = requests;
    while left > 0 {
        for key in keys {
            if left == 0 {
                break;
            }
            allowed += u64::from(allow(black_box(key)));
            left -= 1;
        }
    }
    allowed
}

/// Takes so many turns on a runtime, and counts those that went well.
///
/// The loop runs outside of tokio's cooperative budget: otherwise those that take part in it would
/// yield every 128 turns and the others would not.
#[inline]
pub(crate) fn again(runtime: &Runtime, requests: u64, turn: impl AsyncFn() -> bool) -> u64 {
    runtime.block_on(unconstrained(async {
        let mut granted = 0;
        for _ in 0..requests {
            granted += u64::from(turn().await);
        }
        granted
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Keys;

    #[test]
    fn everybody_allows_everything_asked() {
        let keys = Keys::uniform(100, 1_000, 1);
        for role in Role::ALL {
            let contender = role.enter(100).unwrap();
            assert_eq!(contender.decide(&keys.orders[0], 2_500), 2_500, "{}", role.name());
        }
    }
}
