//! Why a server does not start.

use std::io;
use std::net::SocketAddr;

use tidegate::guard::GuardError;
use tidegate_durable::DurableBuildError;
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
    /// The in-process store cannot be opened.
    #[error("cannot open the in-process store: {0}")]
    Store(#[from] MemoryError),
    /// The snapshot cannot be read, and may belong to another program or version.
    #[error("store.snapshot: {path}: {why}")]
    Snapshot {
        /// Path of the snapshot.
        path: String,
        /// The cause.
        why: SnapshotError,
    },
    /// A snapshot cannot be renamed or copied before a new one replaces it.
    #[error("store.snapshot: cannot back up {path} to {backup}: {why}")]
    Backup {
        /// Path of the snapshot.
        path: String,
        /// Path of the backup that could not be made.
        backup: String,
        /// The cause.
        why: io::Error,
    },
    /// The settings of the shared store are invalid. An unreachable server is not an error.
    #[error("cannot open the shared store: {0}")]
    SharedStore(#[from] OpenError),
    /// The settings of the Durable Objects store are invalid. An unreachable Worker is not an error.
    #[error("cannot open the shared store: {0}")]
    DurableStore(#[from] DurableBuildError),
    /// The guard of the shared store cannot be created.
    #[error("cannot create the guard of the shared store: {0}")]
    Guard(#[from] GuardError),
    /// This version does not support the configured kind of store.
    #[error("store.url: this version does not support this kind of store")]
    UnknownStore,
    /// The worker threads cannot be started.
    #[error("cannot start worker threads: {0}")]
    Workers(io::Error),
    /// A listener cannot be bound.
    #[error("{listener} listener: cannot bind {address}: {source}{}", advice(source))]
    Bind {
        /// Name of the listener: `http`, `admin` or `grpc`.
        listener: &'static str,
        /// The configured address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another program uses this address, choose another port",
        io::ErrorKind::PermissionDenied => "; ports below 1024 require privileges",
        _ => "",
    }
}
