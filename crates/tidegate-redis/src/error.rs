//! Errors of opening and using the store.

use tidegate_core::StoreError;

use crate::format::names::FORMAT;

/// Why a store cannot be opened. An unavailable server is no reason: the store connects in the
/// background, and its operations fail until it has.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address is invalid.
    #[error(
        "redis address {address:?} is not usable: {problem}; an address looks like \
         redis://user:password@host:6379/0, where only the host is required"
    )]
    #[non_exhaustive]
    Address {
        /// The address, with its password masked.
        address: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A TLS certificate or key is invalid.
    #[error("TLS certificate or key for redis is not usable: {0}; pass them in PEM format")]
    Certificate(String),
    /// The key prefix is invalid.
    #[error(
        "key prefix {0:?} is not usable; use 1 to 64 printable ASCII characters, without spaces \
         and braces"
    )]
    Prefix(String),
    /// The address starts with `rediss://`, but the build has no TLS.
    #[error(
        "redis address uses TLS, but this build does not support it; enable the feature `tls` of \
         tidegate-redis, or `redis-tls` of tidegate"
    )]
    NoTls,
    /// There is no tokio runtime for the connection.
    #[error("redis store opened outside a tokio runtime; call `open` from async code")]
    NoRuntime,
    /// The operating system provides no random numbers.
    #[error("operating system provides no random numbers: {0}")]
    Random(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why the store or one operation failed; the source of `StoreError::Unavailable` and
/// `StoreError::Rejected`.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisStoreError {
    /// Not connected, with the error of the last attempt.
    #[error("not connected to redis: {0}; the store keeps trying")]
    NotConnected(String),
    /// The runtime on which the store was opened has ended.
    #[error("tokio runtime in which the redis store was opened has ended; open a new store")]
    RuntimeEnded,
    /// The connection broke during the operation, which may have been executed.
    #[error("connection to redis broke: {0}; the operation may have been executed")]
    ConnectionLost(String),
    /// The server refused the operation: out of memory, read only, not permitted, or similar.
    #[error("redis refused the operation: {0}")]
    Refused(String),
    /// The server lost the script right after it was loaded.
    #[error("redis lost the script right after it was loaded; check what runs SCRIPT FLUSH")]
    ScriptLost,
    /// Data under the prefix has a format that this version does not support.
    #[error(
        "redis contains data of format {0}, but this version supports format {FORMAT}; run the same \
         version on all nodes, or choose another prefix"
    )]
    Format(u8),
    /// The reply is not one that the script of this version sends.
    #[error(
        "redis sent an unexpected reply; check that no other program writes keys under the prefix"
    )]
    InvalidReply,
    /// Other nodes changed the policy of the bucket repeatedly during the operation.
    #[error(
        "policy of a limit changed too often during an operation; check that all nodes \
             configure the same policy"
    )]
    PolicyContention,
    /// A key under the prefix contains data that this store did not write.
    #[error("key under the prefix contains data of another program; choose another prefix")]
    ForeignKey,
}

impl From<RedisStoreError> for StoreError {
    /// Rejects a single operation, because of its reply.
    fn from(fault: RedisStoreError) -> Self {
        Self::Rejected(Box::new(fault))
    }
}

/// How a call to the server failed.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// No response in time; the call may have been executed.
    TimedOut,
    Fault(RedisStoreError),
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::TimedOut => Self::TimedOut,
            CallError::Fault(fault) => Self::Unavailable(Box::new(fault)),
        }
    }
}

impl From<RedisStoreError> for CallError {
    fn from(fault: RedisStoreError) -> Self {
        Self::Fault(fault)
    }
}
