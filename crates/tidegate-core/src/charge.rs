//! Charges: what an operation spends where. Lists of them are decided all-or-nothing.

use crate::key::{Key, KeyError};
use crate::limit::Limit;
use crate::time::Windows;

/// The most charges that one decision may have.
pub const MAX_CHARGES: usize = 16;

/// Why a list of charges cannot be decided. The caller made the mistake; nothing was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChargeError {
    /// No charge at all.
    #[error("a decision needs at least one charge")]
    Empty,
    /// More than [`MAX_CHARGES`].
    #[error("a decision has at most {MAX_CHARGES} charges, not {0}")]
    TooMany(usize),
    /// A key that is empty or too long.
    #[error("the key of charge {0} {1}")]
    Key(usize, KeyError),
    /// A limiter of another engine.
    #[error("charge {0} is on a limiter of another engine")]
    OtherEngine(usize),
    /// A calendar quota without its windows.
    #[error("charge {0} is on a calendar quota and needs its windows")]
    NoWindows(usize),
    /// A policy of more tokens or slots than the store counts exactly.
    #[error("the policy of charge {0} is for more than this store can count exactly")]
    Uncountable(usize),
    /// The windows that came with a charge do not hold the store's wall time.
    #[error(
        "the calendar windows of charge {0} do not hold the store's time: the clocks disagree by more than a window"
    )]
    OtherWindows(usize),
}

/// One bucket: a limit and a key, with the calendar windows if the limit is a calendar quota.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Which limit.
    pub limit: &'a Limit,
    /// Whose bucket.
    pub key: Key<'a>,
    /// The calendar windows around the caller's present; calendar quotas need them.
    pub windows: Option<Windows>,
}

impl<'a> Target<'a> {
    /// The bucket of `key` under `limit`.
    #[must_use]
    pub fn new(limit: &'a Limit, key: impl Into<Key<'a>>) -> Self {
        Self { limit, key: key.into(), windows: None }
    }

    /// With the calendar windows around the caller's present.
    #[must_use]
    pub fn with_windows(mut self, windows: Windows) -> Self {
        self.windows = Some(windows);
        self
    }
}

/// A number of tokens to spend from one bucket. Zero reports its state and never denies.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// Where.
    pub target: Target<'a>,
    /// How much.
    pub cost: u64,
}

impl<'a> Charge<'a> {
    /// Spends `cost` tokens of `key` under `limit`.
    #[must_use]
    pub fn new(limit: &'a Limit, key: impl Into<Key<'a>>, cost: u64) -> Self {
        Self { target: Target::new(limit, key), cost }
    }
}

/// A signed correction of an earlier spend from one bucket.
#[derive(Clone, Copy, Debug)]
pub struct Correction<'a> {
    /// Where.
    pub target: Target<'a>,
    /// Positive charges more, negative gives back.
    pub delta: i64,
}

impl<'a> Correction<'a> {
    /// Corrects an earlier spend of `key` under `limit` by `delta` tokens.
    #[must_use]
    pub fn new(limit: &'a Limit, key: impl Into<Key<'a>>, delta: i64) -> Self {
        Self { target: Target::new(limit, key), delta }
    }
}
