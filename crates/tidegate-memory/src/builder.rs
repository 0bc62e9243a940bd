//! Building a store: memory cap, overflow behaviour and clock.

use crate::clock::{Clock, ClockSource};
use crate::side_table::holds::Holds;
use crate::side_table::leases::Leases;
use crate::store::MemoryStore;
use crate::table::cell::Fingerprint;
use crate::table::line::Line;
use crate::table::overflow::SharedBuckets;

const DEFAULT_MEMORY: usize = 64 << 20;
const MIN_MEMORY: usize = 1 << 20;
const MAX_MEMORY: usize = 1 << 40;
/// Maximum number of lines per slab. Small enough that rebuilding a slab takes a few tens of
/// microseconds.
const MAX_SLAB_LINES: usize = 1_024;
/// Slabs are whole pages.
const PAGE_LINES: usize = 64;

/// Error building a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The memory cap is below 1 MiB.
    #[error("max_memory must be at least 1 MiB, not {0} bytes")]
    TooLittle(usize),
    /// The memory cap is above 1 TiB.
    #[error("max_memory must be at most 1 TiB, not {0} bytes")]
    TooMuch(usize),
    /// The operating system did not provide address space for the table.
    #[error("cannot reserve address space for a table of {0} bytes; lower max_memory")]
    NoAddressSpace(usize),
    /// The operating system did not provide random bytes.
    #[error("cannot get random bytes for the hash secret: {0}")]
    NoRandomness(getrandom::Error),
}

/// What happens to a new key when the table is full of keys in debt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// The key shares one of 4,096 buckets of its limit with other keys. Such a set takes 80 KiB.
    /// An eighth of the memory is set aside for sets, at most half of it for inline limits. When no
    /// set is left, the key is denied. Resetting a key does not reset its shared bucket.
    #[default]
    Shared,
    /// The key is denied.
    Deny,
}

/// Sizes derived from the memory cap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) max_memory: usize,
    /// Lines per slab.
    pub(crate) slab_lines: usize,
    /// The maximum number of slabs is two to the power of this.
    pub(crate) max_depth: u32,
    /// Maximum number of keys with a hold.
    pub(crate) max_holds: usize,
    /// Maximum number of leases.
    pub(crate) max_leases: usize,
    /// Maximum number of limits with shared buckets.
    pub(crate) max_shared_sets: usize,
}

impl Sizes {
    /// Splits the memory: three quarters for the table, an eighth for shared buckets, an eighth for
    /// the side table with holds and leases.
    fn for_memory(max_memory: usize) -> Self {
        let eighth = max_memory / 8;
        let lines = eighth * 6 / size_of::<Line>();
        let mut max_depth = 0;
        while lines >> max_depth > MAX_SLAB_LINES && max_depth < Fingerprint::PREFIX_BITS {
            max_depth += 1;
        }
        let slab_lines = ((lines >> max_depth) / PAGE_LINES * PAGE_LINES).min(MAX_SLAB_LINES);
        let sizes = Self {
            max_memory,
            slab_lines,
            max_depth,
            max_holds: eighth / 4 / Holds::BYTES,
            max_leases: eighth / 2 / Leases::BYTES,
            max_shared_sets: (eighth / SharedBuckets::SET_BYTES).max(1),
        };
        sizes.for_model_checker()
    }

    /// Model checkers cannot explore tables of realistic size.
    #[cfg(any(loom, shuttle))]
    fn for_model_checker(self) -> Self {
        if cfg!(loom) {
            Self { slab_lines: 4, max_depth: 1, ..self }
        } else {
            Self { slab_lines: 8, max_depth: 4, ..self }
        }
    }

    #[cfg(not(any(loom, shuttle)))]
    const fn for_model_checker(self) -> Self {
        self
    }
}

/// Builds a [`MemoryStore`].
///
/// ```
/// use tidegate::{MemoryStore, Overflow};
/// let store = MemoryStore::builder().max_memory(8 << 20).overflow(Overflow::Deny).build()?;
/// assert!(store.stats().max_keys > 190_000);
/// # Ok::<(), tidegate_memory::MemoryError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "call `build` to create the store"]
pub struct MemoryStoreBuilder {
    max_memory: usize,
    overflow: Overflow,
    clock: Option<ClockSource>,
    seed: Option<u64>,
}

impl MemoryStoreBuilder {
    pub(crate) fn new() -> Self {
        Self { max_memory: DEFAULT_MEMORY, overflow: Overflow::default(), clock: None, seed: None }
    }

    /// Maximum number of bytes used by the store, from 1 MiB to 1 TiB. Default: 64 MiB, enough for
    /// about 1.5 million keys. Memory is allocated as keys arrive.
    pub fn max_memory(mut self, bytes: usize) -> Self {
        self.max_memory = bytes;
        self
    }

    /// What happens to a new key when the table is full. Default: [`Overflow::Shared`].
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = overflow;
        self
    }

    /// Clock of the store. Default: the processor's time stamp counter if it is reliable, otherwise
    /// the system's monotonic clock; see [`clock`](crate::clock).
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Some(clock.into_source());
        self
    }

    /// Fixed hash seed, for model checkers that must repeat a run.
    #[cfg(test)]
    #[allow(dead_code, reason = "only used by the model checkers")]
    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Builds the store.
    ///
    /// # Errors
    /// If the memory cap is below 1 MiB or above 1 TiB, or the operating system does not provide
    /// address space for the table or random bytes.
    pub fn build(self) -> Result<MemoryStore, MemoryError> {
        let seed = match self.seed {
            Some(seed) => seed,
            None => random_u64()?,
        };
        self.build_with_seed(seed)
    }

    /// Builds a store with this hash seed.
    pub(crate) fn build_with_seed(self, seed: u64) -> Result<MemoryStore, MemoryError> {
        if self.max_memory < MIN_MEMORY {
            return Err(MemoryError::TooLittle(self.max_memory));
        }
        if self.max_memory > MAX_MEMORY {
            return Err(MemoryError::TooMuch(self.max_memory));
        }
        let issuer = match self.seed {
            Some(seed) => seed,
            None => random_u64()?,
        };
        let clock = self.clock.unwrap_or_default();
        let sizes = Sizes::for_memory(self.max_memory);
        MemoryStore::assemble(sizes, self.overflow, clock, seed, issuer)
            .ok_or(MemoryError::NoAddressSpace(self.max_memory))
    }
}

fn random_u64() -> Result<u64, MemoryError> {
    getrandom::u64().map_err(MemoryError::NoRandomness)
}
