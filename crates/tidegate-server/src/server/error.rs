//! Why a server does not start.

use std::io;
use std::net::SocketAddr;

use tidegate::guard::GuardError;
use tidegate_memory::{MemoryError, SnapshotError};
use tidegate_redis::OpenError;

use crate::configuration::ChangeError;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Configuration(#[from] ChangeError),
    /// The store cannot be opened.
    #[error("the in-process store cannot be opened: {0}")]
    Store(#[from] MemoryError),
    /// The snapshot cannot be used, and is not ours to put aside.
    #[error("store.snapshot: {path}: {why}")]
    Snapshot {
        /// Where it was to be.
        path: String,
        /// Why it cannot be.
        why: SnapshotError,
    },
    /// A snapshot cannot be put aside before another takes its place.
    #[error("store.snapshot: {path} cannot be kept as {aside}: {why}")]
    Aside {
        /// The snapshot.
        path: String,
        /// The name that it was to have.
        aside: String,
        /// Why it cannot.
        why: io::Error,
    },
    /// The shared store cannot be opened, whether or not its server is there.
    #[error("the shared store cannot be opened: {0}")]
    SharedStore(#[from] OpenError),
    /// The shared store cannot be guarded.
    #[error("the shared store cannot be guarded: {0}")]
    Guard(#[from] GuardError),
    /// A store of a kind that this version does not have.
    #[error("this version cannot open the configured store")]
    UnknownStore,
    /// The threads that serve connections cannot be started.
    #[error("no threads to serve connections: {0}")]
    Workers(io::Error),
    /// An address cannot be listened on.
    #[error("the {door} door cannot open on {address}: {source}{}", advice(source))]
    Bind {
        /// Which door.
        door: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another program listens there, choose another port",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege",
        _ => "",
    }
}
