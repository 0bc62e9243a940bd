//! Errors of building and using the store.

use std::error::Error;

use tidegate_core::StoreError;
use tidegate_shard::route::MAX_SHARDS;

/// Why a store cannot be built. An unavailable Worker is no reason: operations fail until it
/// responds.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DurableBuildError {
    /// The address is invalid.
    #[error(
        "address {address:?} of the Worker is not usable: {problem}; an address looks like \
         durable://limits.example.workers.dev, or durable+http://127.0.0.1:8787 without TLS"
    )]
    #[non_exhaustive]
    Address {
        /// The address, without what may be a secret.
        address: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The number of shards is zero or too large.
    #[error("number of shards is {0}, but must be from 1 to {MAX_SHARDS}")]
    Shards(u64),
    /// The secret is empty or cannot be sent in a header.
    #[error("secret of the Worker is empty or has characters that a header cannot have")]
    Secret,
    /// The address needs TLS, but the build has none.
    #[error(
        "address of the Worker uses TLS, but this build does not support it; enable the feature `tls` of tidegate-durable"
    )]
    NoTls,
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[source] Box<dyn Error + Send + Sync>),
    /// The operating system provides no random numbers.
    #[error("operating system provides no random numbers: {0}")]
    Random(#[source] Box<dyn Error + Send + Sync>),
}

/// Why an operation failed; the source of `StoreError::Unavailable` and `StoreError::Rejected`.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DurableStoreError {
    /// No connection, or it broke. In the latter case the operation may have been executed.
    #[error("request to the Worker at {host} failed: {reason}; check the address and the network")]
    #[non_exhaustive]
    Connection {
        /// Host and port.
        host: String,
        /// What happened.
        reason: String,
    },
    /// The Worker refused the secret.
    #[error(
        "Worker at {host} refused the secret (status {status}); use the value of its \
         TIDEGATE_SECRET, and check whether something in front of it refuses requests"
    )]
    #[non_exhaustive]
    Unauthorized {
        /// Host and port.
        host: String,
        /// HTTP status, 401 or 403.
        status: u16,
    },
    /// Another status than 200.
    #[error("Worker responded with status {status}: {text}")]
    #[non_exhaustive]
    Status {
        /// HTTP status.
        status: u16,
        /// Start of the body.
        text: String,
    },
    /// The body of the response is no reply, or has another format.
    #[error("response of the Worker cannot be read: {0}")]
    Malformed(String),
    /// This version of the messages does not have the operation.
    #[error("operation is not supported by the Durable Objects store")]
    Unsupported,
}

impl DurableStoreError {
    /// Returns the error as the core reports it.
    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            // The Worker is fine; the request is not.
            Self::Status { status: 400 | 404 | 413, .. } | Self::Unsupported => {
                StoreError::Rejected(Box::new(self))
            }
            _ => StoreError::Unavailable(Box::new(self)),
        }
    }
}
