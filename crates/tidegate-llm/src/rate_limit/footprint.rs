//! What accounts, queues and models take of memory.
//!
//! The constants are measured, with the longest names, the allocator's share, the limits in the registry
//! of the engine and their buckets, and rounded up: a queue with a model and its three limits takes 8.5
//! KiB and 0.7 KiB of names, an account beside that 3.7 KiB. A test of the program compares them with its
//! resident memory.

use tidegate_providers::{Dialect, Dimension};

use super::builder::tokens_of;
use super::limits::AccountLimits;

/// An account without queues, and what a server keeps of it.
const ACCOUNT: usize = 4 << 10;
/// A queue without limits that were configured.
const QUEUE: usize = 3_584;
/// What is learned of a model, without its limits.
const MODEL: usize = 2 << 10;
/// One limit.
const LIMIT: usize = 1_280;

/// What an account of a dialect takes under these limits, with one model.
#[must_use]
pub fn account_footprint(limits: &AccountLimits, dialect: Dialect) -> usize {
    let tokens = tokens_of(dialect);
    of_account(tokens) + of_queue(limits) + of_model(tokens)
}

/// An account, with the queue and the model that those share for which there is no room.
pub(super) const fn of_account(tokens: &[Dimension]) -> usize {
    ACCOUNT + QUEUE + of_model(tokens)
}

/// A queue under these limits.
pub(super) fn of_queue(limits: &AccountLimits) -> usize {
    QUEUE + limits.count() * LIMIT
}

/// What is learned of a model: its gate, and the limits that are to be expected.
pub(super) const fn of_model(tokens: &[Dimension]) -> usize {
    MODEL + (2 + tokens.len()) * LIMIT
}
