//! What can go wrong, and whose fault it is.

use tidegate_core::StoreError;

use crate::format::names::FORMAT;

/// Why a store cannot be opened. A server that does not answer is no reason: the store connects
/// in the background, and its operations fail until it has.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Not the address of a Redis server.
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
    /// A certificate or a key that cannot be used.
    #[error("TLS certificate or key for redis is not usable: {0}; pass them in PEM format")]
    Certificate(String),
    /// A prefix that cannot be part of a key.
    #[error(
        "key prefix {0:?} is not usable; use 1 to 64 printable ASCII characters, without spaces \
         and braces"
    )]
    Prefix(String),
    /// `rediss://` in a build without TLS.
    #[error(
        "redis address with TLS needs the feature `tls` of tidegate-redis, or `redis-tls` of tidegate; \
         enable it"
    )]
    NoTls,
    /// No tokio runtime to run the connection on.
    #[error("redis store opened outside of a tokio runtime; call `open` from async code")]
    NoRuntime,
    /// The system gives no random numbers.
    #[error("operating system gives no random numbers: {0}")]
    Random(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why the store could not work, or not for one operation; the source of
/// `StoreError::Unavailable` and `StoreError::Rejected`.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisFault {
    /// There is no connection. The text is why the last try failed.
    #[error("not connected to redis: {0}; the store keeps trying")]
    NotConnected(String),
    /// The runtime on which the store was opened has ended.
    #[error("tokio runtime in which the redis store was opened has ended; open a new store")]
    Ended,
    /// The connection broke while the operation was under way. It may have been carried out.
    #[error("connection to redis broke: {0}; the operation may have been carried out")]
    Broken(String),
    /// The server refused: out of memory, read only, not permitted, or the like.
    #[error("redis refused the operation: {0}")]
    Refused(String),
    /// The server has forgotten the script again, right after it was loaded.
    #[error("redis lost the script right after it was loaded; check what runs SCRIPT FLUSH")]
    ScriptLost,
    /// Something under the prefix is of a format that this version does not know.
    #[error(
        "redis holds data of format {0}, but this version reads and writes format {FORMAT}; run \
         versions that agree, or choose another prefix"
    )]
    Format(u8),
    /// A reply that the script of this version does not give.
    #[error(
        "redis sent a reply that the script does not give; check that nothing else writes \
             keys under the prefix"
    )]
    InvalidReply,
    /// Others changed the bucket's policy again and again in between.
    #[error(
        "policy of a limit changes too often to decide; check that all nodes configure the \
             same policy"
    )]
    Contended,
    /// A key under the prefix holds something that this store has not put there.
    #[error("key under the prefix holds data of another program; choose another prefix")]
    ForeignKey,
}

impl From<RedisFault> for StoreError {
    /// What is wrong with one operation, found in the answer to it.
    fn from(fault: RedisFault) -> Self {
        Self::Rejected(Box::new(fault))
    }
}

/// How a call to the server failed.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// No answer in time; it may have been carried out.
    TimedOut,
    Fault(RedisFault),
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::TimedOut => Self::TimedOut,
            CallError::Fault(fault) => Self::Unavailable(Box::new(fault)),
        }
    }
}

impl From<RedisFault> for CallError {
    fn from(fault: RedisFault) -> Self {
        Self::Fault(fault)
    }
}
