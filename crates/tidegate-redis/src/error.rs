//! What can go wrong, and whose fault it is.

use tidegate_core::StoreError;

use crate::format::names::FORMAT;

/// Why a store cannot be opened. A server that does not answer is no reason: the store connects
/// in the background, and its operations fail until it has.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Not the address of a Redis server. The text does not repeat it: it may hold a password.
    #[error("the address of the store is not usable: {0}")]
    Address(String),
    /// A prefix that cannot be part of a key.
    #[error("{0:?} is not a prefix: 1 to 64 printable ASCII characters, without spaces and braces")]
    Prefix(String),
    /// `rediss://` in a build without TLS.
    #[error("rediss:// needs the feature `tls` of tidegate-redis")]
    NoTls,
    /// No tokio runtime to run the connection on.
    #[error("a store is opened inside of a tokio runtime, which then runs its connection")]
    NoRuntime,
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] getrandom::Error),
}

/// Why the store could not work, or not for one operation; the source of
/// [`StoreError::Unavailable`] and [`StoreError::Rejected`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// There is no connection. The text is why the last try failed.
    #[error("not connected: {0}")]
    NotConnected(String),
    /// The runtime on which the store was opened has ended.
    #[error("the runtime on which the store was opened has ended")]
    Ended,
    /// The connection broke while the operation was under way. It may have been carried out.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The server refused: out of memory, read only, not permitted, or the like.
    #[error("the server refused: {0}")]
    Refused(String),
    /// The server has forgotten the script again, right after it was loaded.
    #[error("the server forgets the script as soon as it is loaded")]
    Forgetful,
    /// Something under the prefix is of a format that this version does not know.
    #[error(
        "what is stored has format {0}, this version reads and writes format {FORMAT}: run \
         versions that agree, or choose another prefix"
    )]
    Format(u8),
    /// An answer that the script of this version does not give.
    #[error("the server gave an answer that makes no sense")]
    Nonsense,
    /// Others changed the bucket's policy again and again in between.
    #[error("the policy of a limit is being changed too often")]
    Contended,
    /// A key under the prefix holds something that this store has not put there.
    #[error("a key under the prefix of the store holds something that is not the store's")]
    NotOurs,
}

impl From<Fault> for StoreError {
    /// What is wrong with one operation, found in the answer to it.
    fn from(fault: Fault) -> Self {
        Self::Rejected(Box::new(fault))
    }
}

/// How a call to the server failed.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// No answer in time; it may have been carried out.
    TimedOut,
    Fault(Fault),
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::TimedOut => Self::TimedOut,
            CallError::Fault(fault) => Self::Unavailable(Box::new(fault)),
        }
    }
}

impl From<Fault> for CallError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
