//! The in-process store of Tidegate: bounded memory, exact decisions, no background threads.
//!
//! Buckets live in a table of cache lines, three to a line, with a lock in each line and 48 bits of
//! a seeded hash in place of the key. A list of charges locks its lines in order and is decided
//! under those locks, so it is all-or-nothing for every observer. A bucket that is full again is
//! the same as no bucket, so evicting it loses nothing; when only indebted ones are left, new keys
//! share a bounded set of buckets ([`Overflow`]). What this crate refuses to do: wait, spawn
//! (unless a [`CachedClock`](clock::CachedClock) is asked to tick), store key strings, or forget an
//! offender to make room.

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
