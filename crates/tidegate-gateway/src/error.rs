//! Why there is no gateway, or why it stays as it was.

use tidegate::LimitError;
use tidegate_llm::client::ClientError;
use tidegate_providers::request::RequestError;

/// Any error of an HTTP service or a body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why upstreams cannot be served. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// A name is no segment of a path.
    #[error("`{0}` cannot be the name of a provider: letters, digits, `-`, `_` and `.` make one")]
    Name(String),
    /// Two upstreams have the same name.
    #[error("there are two providers of the name `{0}`")]
    Twice(String),
    /// An address or a key cannot be used.
    #[error("provider `{name}`: {source}")]
    Target {
        /// The provider.
        name: String,
        /// What is wrong.
        #[source]
        source: RequestError,
    },
    /// Root certificates cannot be used.
    #[error("provider `{name}`: {source}")]
    Roots {
        /// The provider.
        name: String,
        /// What is wrong.
        #[source]
        source: ClientError,
    },
    /// A fallback names nobody.
    #[error("provider `{name}` falls back to `{target}`, which there is not")]
    Fallback {
        /// The provider.
        name: String,
        /// Who was named.
        target: String,
    },
    /// There are more fallbacks than a chain can have.
    #[error("provider `{0}` has too many fallbacks")]
    TooManyFallbacks(String),
    /// Limits cannot be kept.
    #[error("provider `{name}`: {source}")]
    Limits {
        /// The provider.
        name: String,
        /// What is wrong.
        #[source]
        source: LimitError,
    },
    /// There is no HTTP client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The system has no random numbers.
    #[error("no random numbers from the system")]
    Random,
}
