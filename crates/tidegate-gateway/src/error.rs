//! Why a configuration of upstreams is rejected.

use tidegate::LimitError;
use tidegate_llm::ConnectionError;
use tidegate_llm::fallback::MAX_TARGETS;
use tidegate_providers::request::RequestError;

/// Error of an HTTP service or a body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why upstreams are rejected. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// A provider name is not a valid path segment.
    #[error(
        "invalid provider name `{0}`: use letters, digits, `-`, `_` and `.`, but no leading `.`"
    )]
    InvalidName(String),
    /// Two upstreams have the same name.
    #[error("provider `{0}` is configured twice")]
    DuplicateName(String),
    /// A base URL or a key is invalid.
    #[error("provider `{name}`: {source}")]
    InvalidTarget {
        /// The provider.
        name: String,
        /// The cause.
        #[source]
        source: RequestError,
    },
    /// A root certificate is invalid.
    #[error("provider `{name}`: {source}")]
    RootCertificates {
        /// The provider.
        name: String,
        /// The cause.
        #[source]
        source: ConnectionError,
    },
    /// A fallback names a provider that is not configured.
    #[error("provider `{name}`: fallback `{target}` is not configured")]
    UnknownFallback {
        /// The provider.
        name: String,
        /// The unknown fallback.
        target: String,
    },
    /// A provider has more fallbacks than a chain supports.
    #[error("provider `{0}` has too many fallbacks: at most {MAX_TARGETS} are supported")]
    TooManyFallbacks(String),
    /// The limits of a provider are invalid.
    #[error("provider `{name}`: {source}")]
    Limits {
        /// The provider.
        name: String,
        /// The cause.
        #[source]
        source: LimitError,
    },
    /// The HTTP client cannot be created.
    #[error(transparent)]
    Client(#[from] ConnectionError),
    /// The system's random number generator failed.
    #[error("the random number generator of the system failed")]
    NoRandomness,
}
