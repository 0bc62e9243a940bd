//! Snapshots: saving a store to a file and restoring it, so that usage survives a restart.
//!
//! [`MemoryStore::save`](crate::MemoryStore::save) writes the file, and
//! [`MemoryStoreBuilder::restore`](crate::MemoryStoreBuilder::restore) creates a store from it.
//! Times are written as wall time, so downtime counts as refill. A file is either restored
//! completely or rejected.
//!
//! If saving fails, the previous file is still in place, with one exception: if the new file has
//! been renamed and only syncing the directory fails, the new file is in place, complete. If the
//! machine then stops before the system has written the directory itself, either of the two may be
//! found.
//!
//! The file does not contain key strings, which the store does not know, or leases of concurrency
//! limits, whose holders are gone after a restart. It does contain the secret of the hash, so it is
//! readable only by its owner.

mod bytes;
pub(crate) mod convert;
mod error;
mod file;
mod format;
mod history;
mod policy;
mod reader;
mod records;
mod save_restore;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
mod times;

pub use error::SnapshotError;
pub(crate) use history::RestoredLimits;

/// Result of saving a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// Keys in the file. Full buckets are omitted, since they are equivalent to none.
    pub keys: u64,
    /// Size of the file.
    pub bytes: u64,
}

/// Result of restoring a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// Keys, holds and shared buckets restored.
    pub keys: u64,
    /// Entries that have become full since, and so are equivalent to none.
    pub full: u64,
    /// Entries for which the store is too small. They start fresh, so log a warning if there are
    /// any.
    pub no_room: u64,
}
