//! Charges: how much to spend from which bucket. A list of charges is decided all-or-nothing.

use crate::key::{Key, KeyError};
use crate::limit::Limit;
use crate::time::Windows;

/// Maximum number of charges in one decision.
pub const MAX_CHARGES: usize = 16;

/// Error in a list of charges. The caller must fix it; nothing was spent.
///
/// Numbers are the index of the charge in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChargeError {
    /// The list is empty.
    #[error("a decision needs at least one charge")]
    Empty,
    /// The list has more than [`MAX_CHARGES`] charges.
    #[error("a decision can have at most {MAX_CHARGES} charges, not {0}")]
    TooMany(usize),
    /// The key is empty or too long.
    #[error("the key of charge {0} {1}")]
    Key(usize, KeyError),
    /// The limiter belongs to another engine.
    #[error("charge {0} is on a limiter of another engine; create all limiters with one engine")]
    OtherEngine(usize),
    /// The limit is a calendar quota and the charge has no windows.
    #[error("charge {0} is on a calendar quota and needs its windows")]
    NoWindows(usize),
    /// The policy has more tokens or slots than the store can count exactly.
    #[error("the policy of charge {0} has more tokens or slots than this store can count exactly")]
    Uncountable(usize),
    /// The windows of the charge do not contain the store's wall time.
    #[error(
        "the calendar windows of charge {0} do not contain the store's time: the clocks differ by more than a window"
    )]
    OtherWindows(usize),
}

/// One bucket: a limit, a key and, for a calendar quota, the calendar windows.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// The key whose bucket it is.
    pub key: Key<'a>,
    /// Calendar windows around the caller's current time; required for calendar quotas.
    pub windows: Option<Windows>,
}

impl<'a> Target<'a> {
    /// Creates a target for the bucket of `key` under `limit`.
    #[must_use]
    pub fn new(limit: &'a Limit, key: impl Into<Key<'a>>) -> Self {
        Self { limit, key: key.into(), windows: None }
    }

    /// Sets the calendar windows around the caller's current time.
    #[must_use]
    pub fn with_windows(mut self, windows: Windows) -> Self {
        self.windows = Some(windows);
        self
    }
}

/// A number of tokens to spend from one bucket. A cost of zero reports the state and is never
/// denied.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The bucket to spend from.
    pub target: Target<'a>,
    /// Number of tokens.
    pub cost: u64,
}

impl<'a> Charge<'a> {
    /// Creates a charge of `cost` tokens on `key` under `limit`.
    #[must_use]
    pub fn new(limit: &'a Limit, key: impl Into<Key<'a>>, cost: u64) -> Self {
        Self { target: Target::new(limit, key), cost }
    }
}

/// A signed correction of an earlier charge on one bucket.
#[derive(Clone, Copy, Debug)]
pub struct Correction<'a> {
    /// The bucket to correct.
    pub target: Target<'a>,
    /// Number of tokens: positive charges more, negative refunds.
    pub delta: i64,
}

impl<'a> Correction<'a> {
    /// Creates a correction by `delta` tokens for `key` under `limit`.
    #[must_use]
    pub fn new(limit: &'a Limit, key: impl Into<Key<'a>>, delta: i64) -> Self {
        Self { target: Target::new(limit, key), delta }
    }
}
