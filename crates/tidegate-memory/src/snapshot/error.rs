//! Errors of saving and restoring a snapshot.

use std::io;

use crate::builder::MemoryError;

/// Error saving or restoring a snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file does not exist: nothing has been saved yet.
    #[error("snapshot not found")]
    NotFound,
    /// The file cannot be read or written, or its directory cannot be synced.
    #[error("cannot read or write the snapshot: {0}")]
    Io(#[from] io::Error),
    /// The path is a directory, a device or a pipe.
    #[error("the snapshot path is not a regular file")]
    NotAFile,
    /// The file is not a snapshot.
    #[error("the file is not a Tidegate snapshot")]
    NotASnapshot,
    /// The format belongs to another version.
    #[error("snapshot format {0} is not supported; this version reads format 1")]
    Format(u32),
    /// The file is truncated or corrupted.
    #[error("the snapshot is damaged at byte {at}: {what}")]
    Damaged {
        /// Description of the damage.
        what: &'static str,
        /// Offset of the damaged block, in bytes.
        at: u64,
    },
    /// The file was written with a different hash function, so no key would be found again.
    #[error("the snapshot was written with a different hash function")]
    OtherHash,
    /// The store is shared; it persists usage itself.
    #[error("the store is shared; only the in-process store can be saved to a file")]
    SharedStore,
    /// The store cannot be built.
    #[error(transparent)]
    Store(#[from] MemoryError),
}
