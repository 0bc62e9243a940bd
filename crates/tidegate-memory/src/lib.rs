//! The in-process store of Tidegate: bounded memory, exact decisions, no background threads.
//!
//! Buckets live in a table that stores a seeded 64-bit hash in place of the key, split into
//! shards with a lock each. A list of charges locks its shards in order and is decided under
//! those locks, so it is all-or-nothing for every observer. A bucket that is full again is the
//! same as no bucket, so evicting it loses nothing; when only indebted ones are left, new keys
//! share a bounded set of buckets ([`Overflow`]). What this crate refuses to do: wait, spawn,
//! store key strings, or forget an offender to make room.

mod builder;
pub mod clock;
mod hash;
mod leases;
mod locked;
mod operations;
mod overflow;
mod plain;
mod seats;
mod shard;
mod stats;
mod store;
mod sync;
mod table;

#[cfg(all(test, loom))]
mod model_loom;
#[cfg(all(test, shuttle))]
mod model_shuttle;

pub use builder::{MemoryError, MemoryStoreBuilder, Overflow};
pub use stats::Stats;
pub use store::MemoryStore;
