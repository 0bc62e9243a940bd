//! A store in a file, and back: what was spent outlives the process.
//!
//! [`MemoryStore::save`](crate::MemoryStore::save) writes the file, and
//! [`MemoryStoreBuilder::restore`](crate::MemoryStoreBuilder::restore) makes a store of it. Times
//! are written as wall time, so the time in which the program was down counts as refill. A file is
//! either whole or refused; half of one is never restored.
//!
//! If context fails, the file of before is there, with one exception: when the new one has its name
//! and only the folder cannot be brought to the disk, the new one is there, whole. Should the
//! machine stop before the system has written the folder by itself, it is either of the two.
//!
//! Not in the file: key strings, which the store does not know, and the leases of concurrency
//! limits, since the processes that held them are gone. What is in it: the secret of the hash, so
//! the file is for its owner's eyes only.

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

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// Keys in the file. Full buckets are the same as none, and are left out.
    pub keys: u64,
    /// The size of the file.
    pub bytes: u64,
}

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// Keys, holds and shared buckets that are in the store again.
    pub keys: u64,
    /// Those that have become full meanwhile, and so are the same as none.
    pub full: u64,
    /// Those for which the store is too small. They start anew, so this is worth a warning.
    pub no_room: u64,
}
