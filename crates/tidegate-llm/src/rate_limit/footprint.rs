//! Memory footprints of accounts, queues and models.
//!
//! The constants are measured and rounded up. They include the longest names, allocator overhead,
//! the limits in the engine's registry and their buckets: a queue with one model and its three
//! limits takes 8.5 KiB plus 0.7 KiB for names, an account another 3.7 KiB. A program test compares
//! them with its resident memory.

use tidegate_providers::{Dialect, Dimension};

use super::builder::tokens_of;
use super::limits::AccountLimits;

/// An account without queues, including a server's own state for it.
const ACCOUNT: usize = 4 << 10;
/// A queue without configured limits.
const QUEUE: usize = 3_584;
/// Learned state of a model, without its limits.
const MODEL: usize = 2 << 10;
/// One limit.
const LIMIT: usize = 1_280;

/// Returns the memory footprint of an account with one model, in bytes.
#[must_use]
pub fn account_footprint(limits: &AccountLimits, dialect: Dialect) -> usize {
    let tokens = tokens_of(dialect);
    of_account(tokens) + of_queue(limits) + of_model(tokens)
}

/// An account, including the overflow queue and model that others share when there is no room.
pub(super) const fn of_account(tokens: &[Dimension]) -> usize {
    ACCOUNT + QUEUE + of_model(tokens)
}

/// A queue with these limits.
pub(super) fn of_queue(limits: &AccountLimits) -> usize {
    QUEUE + limits.count() * LIMIT
}

/// Learned state of a model: its gate and expected limits.
pub(super) const fn of_model(tokens: &[Dimension]) -> usize {
    MODEL + (2 + tokens.len()) * LIMIT
}
