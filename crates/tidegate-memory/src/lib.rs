//! The in-process store of Tidegate: bounded memory, exact decisions, no background threads.
//!
//! Buckets live in a table of cache lines, three to a line, with a lock in each line and 48 bits of
//! a seeded hash in place of the key. A list of charges locks its lines in order and is decided
//! under those locks, so it is all-or-nothing for every observer. A bucket that is full again is
//! the same as no bucket, so evicting it loses nothing; when only indebted ones are left, new keys
//! share a bounded set of buckets ([`Overflow`]). What this crate refuses to do: wait, spawn
//! (unless a [`CachedClock`](clock::CachedClock) is asked to tick), store key strings, or forget an
//! offender to make room.

mod arena;
mod batch;
mod beside;
mod builder;
mod cell;
pub mod clock;
mod directory;
mod hash;
mod holds;
mod leases;
mod line;
mod lines;
mod locked;
mod operations;
mod overflow;
mod plain;
mod prefetch;
mod seats;
mod segment;
mod snapshot;
mod stats;
mod store;
mod sync;
mod table;
mod valve;
mod verdict;

#[cfg(all(test, loom))]
mod model_loom;
#[cfg(all(test, shuttle))]
mod model_shuttle;

pub use builder::{MemoryError, MemoryStoreBuilder, Overflow};
#[doc(hidden)]
pub use prefetch::prefetch;
pub use snapshot::{Restored, Saved, SnapshotError};
pub use stats::Stats;
pub use store::MemoryStore;
pub use valve::{NotABucket, Valve};
pub use verdict::Verdict;
