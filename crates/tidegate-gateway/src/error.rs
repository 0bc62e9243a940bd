//! [`GatewayError`]: why a configuration of upstreams is rejected.

use tidegate_llm::client::ClientError;
use tidegate_llm::rate_limit::AccountError;
use tidegate_providers::request::RequestError;

/// Error of an HTTP service or a body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why upstreams are rejected. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// A provider name is not a valid path segment.
    #[error("`{0}` cannot be the name of a provider: letters, digits, `-`, `_` and `.` make one")]
    Name(String),
    /// Two upstreams have the same name.
    #[error("there are two providers of the name `{0}`")]
    Twice(String),
    /// A base URL or a key is invalid.
    #[error("provider `{name}`: {source}")]
    Target {
        /// The provider.
        name: String,
        /// The cause.
        #[source]
        source: RequestError,
    },
    /// A root certificate is invalid.
    #[error("provider `{name}`: {source}")]
    Roots {
        /// The provider.
        name: String,
        /// The cause.
        #[source]
        source: ClientError,
    },
    /// A fallback names a provider that is not configured.
    #[error("provider `{name}` falls back to `{target}`, which there is not")]
    Fallback {
        /// The provider.
        name: String,
        /// The unknown fallback.
        target: String,
    },
    /// A provider has more fallbacks than a chain supports.
    #[error("provider `{0}` has too many fallbacks")]
    TooManyFallbacks(String),
    /// The limits of a provider are invalid.
    #[error("provider `{name}`: {source}")]
    Limits {
        /// The provider.
        name: String,
        /// The cause.
        #[source]
        source: AccountError,
    },
    /// The HTTP client cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The system's random number generator failed.
    #[error("no random numbers from the system")]
    Random,
}
