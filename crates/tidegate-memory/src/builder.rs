//! Making a store: how much memory, what to do when it is used up, which clock.

use std::sync::Arc;

use crate::clock::{Clock, Source, SystemClock};
use crate::leases::Leases;
use crate::overflow::SharedBuckets;
use crate::shard::Shard;
use crate::store::MemoryStore;
use crate::table::Table;

const DEFAULT_MEMORY: usize = 64 << 20;
const MIN_MEMORY: usize = 1 << 20;
const MAX_MEMORY: usize = 1 << 40;
/// Slots of a shard at its largest: small enough that growing it takes some tens of
/// microseconds.
const MAX_SLOTS: usize = 4_096;

/// Why a store cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Less than 1 MiB.
    #[error("max_memory must be at least 1 MiB, not {0} bytes")]
    TooLittle(usize),
    /// More than 1 TiB.
    #[error("max_memory must be at most 1 TiB, not {0} bytes")]
    TooMuch(usize),
    /// The operating system gives no random bytes.
    #[error("no random bytes for the hash secret: {0}")]
    NoRandomness(getrandom::Error),
}

/// What happens to a new key when only indebted ones are left and no memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// It shares one of 4,096 buckets of its limit with others. Such a set takes 96 KiB; an eighth
    /// of the memory is kept for sets, half of that at most for inline limits. A limit for which
    /// there is none left denies. Resetting a key does not touch a bucket that it shares.
    #[default]
    Shared,
    /// It is denied.
    Deny,
}

/// Sizes that follow from the memory cap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) max_memory: usize,
    pub(crate) shards: usize,
    pub(crate) max_slots: usize,
    /// Holds that one shard may have.
    pub(crate) max_holds: usize,
    /// Leases that the store may have.
    pub(crate) max_leases: usize,
    /// Limits that may have shared buckets.
    pub(crate) max_shared_sets: usize,
}

impl Sizes {
    /// Three quarters of the memory for the table, an eighth for shared buckets, an eighth for
    /// holds and leases and the shards themselves.
    fn of(max_memory: usize) -> Self {
        let eighth = max_memory / 8;
        let shards = (eighth * 6 / (MAX_SLOTS * Table::SLOT_BYTES)).max(1);
        let per_shard = eighth / shards;
        Self {
            max_memory,
            shards,
            max_slots: MAX_SLOTS,
            max_holds: per_shard / 4 / Shard::HOLD_BYTES,
            max_leases: eighth / 2 / Leases::BYTES,
            max_shared_sets: (eighth / SharedBuckets::SET_BYTES).max(1),
        }
    }
}

/// Builds a [`MemoryStore`].
///
/// ```
/// use tidegate_memory::{MemoryStore, Overflow};
/// let store = MemoryStore::builder().max_memory(8 << 20).overflow(Overflow::Deny).build()?;
/// assert!(store.stats().max_keys > 190_000);
/// # Ok::<(), tidegate_memory::MemoryError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a store is made by `build`"]
pub struct MemoryStoreBuilder {
    max_memory: usize,
    overflow: Overflow,
    clock: Option<Arc<dyn Clock>>,
    seed: Option<u64>,
}

impl MemoryStoreBuilder {
    pub(crate) fn new() -> Self {
        Self { max_memory: DEFAULT_MEMORY, overflow: Overflow::default(), clock: None, seed: None }
    }

    /// Bytes that the store may take, from 1 MiB to 1 TiB. Default: 64 MiB, which is room for some
    /// 1.5 million keys. Memory is taken as keys come.
    pub fn max_memory(mut self, bytes: usize) -> Self {
        self.max_memory = bytes;
        self
    }

    /// What happens to a new key when there is no room. Default: [`Overflow::Shared`].
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = overflow;
        self
    }

    /// The clock to decide by. Default: the system's monotonic clock.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// A fixed hash seed, for model checkers that must repeat a run.
    #[cfg(test)]
    #[allow(dead_code, reason = "used by the model checkers only")]
    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The store.
    ///
    /// # Errors
    /// When the memory is below 1 MiB or above 1 TiB, or the operating system gives no random bytes.
    pub fn build(self) -> Result<MemoryStore, MemoryError> {
        if self.max_memory < MIN_MEMORY {
            return Err(MemoryError::TooLittle(self.max_memory));
        }
        if self.max_memory > MAX_MEMORY {
            return Err(MemoryError::TooMuch(self.max_memory));
        }
        let random = || getrandom::u64().map_err(MemoryError::NoRandomness);
        let (seed, issuer) = match self.seed {
            Some(seed) => (seed, seed),
            None => (random()?, random()?),
        };
        let clock = match self.clock {
            Some(clock) => Source::Other(clock),
            None => Source::System(SystemClock::new()),
        };
        Ok(MemoryStore::assemble(Sizes::of(self.max_memory), self.overflow, clock, seed, issuer))
    }
}
