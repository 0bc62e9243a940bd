//! In-process store of Tidegate: bounded memory, exact decisions, no background threads.
//!
//! Buckets live in a table of cache lines, three per line. Each line has its own lock, and stores
//! 48 bits of a seeded hash in place of each key. A list of charges locks its lines in order and is
//! decided under those locks, so every observer sees it all-or-nothing. A full bucket is equivalent
//! to no bucket, so evicting it loses nothing. When only buckets in debt are left, new keys share a
//! bounded set of buckets ([`Overflow`]).
//!
//! This crate never waits, never spawns a thread (except for a ticking
//! [`CachedClock`](clock::CachedClock)), never stores key strings, and never evicts a key in debt
//! to make room.

mod builder;
pub mod clock;
mod direct;
mod operation;
mod side_table;
mod snapshot;
mod stats;
mod store;
mod sync;
mod table;
#[cfg(test)]
mod work;

#[cfg(all(test, loom))]
mod model_loom;
#[cfg(all(test, shuttle))]
mod model_shuttle;

pub use builder::{MemoryError, MemoryStoreBuilder, Overflow};
pub use direct::DirectLimiter;
pub use operation::bare_decision::BareDecision;
pub use snapshot::{Restored, Saved, SnapshotError};
pub use stats::Stats;
pub use store::MemoryStore;
#[doc(hidden)]
pub use table::prefetch::prefetch;
