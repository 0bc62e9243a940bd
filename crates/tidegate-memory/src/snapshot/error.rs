//! Why a snapshot cannot be written or read.

use std::io;

use crate::builder::MemoryError;

/// Why a snapshot cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// There is no such file: nothing was saved yet.
    #[error("snapshot not found")]
    NotFound,
    /// The file cannot be read or written, or its folder not be brought to the disk.
    #[error("cannot read or write the snapshot: {0}")]
    Io(#[from] io::Error),
    /// There is a directory, a device or a pipe where the file should be.
    #[error("the snapshot path is not a regular file")]
    NotAFile,
    /// The file is something else.
    #[error("the file is not a Tidegate snapshot")]
    NotASnapshot,
    /// A format of another version.
    #[error("snapshot format {0} is not supported; this version reads format 1")]
    Format(u32),
    /// The file is cut off, or not what was written.
    #[error("the snapshot is damaged at byte {at}: {what}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// Where the part that is wrong begins.
        at: u64,
    },
    /// Keys would not be found again: the hash function was another one.
    #[error("the snapshot was written with a different hash function")]
    OtherHash,
    /// The store is a shared one, which keeps what was spent by itself.
    #[error("the store is shared; only the in-process store can be saved to a file")]
    SharedStore,
    /// The store cannot be made.
    #[error(transparent)]
    Store(#[from] MemoryError),
}
