//! Errors of building requests. None of them contains text of a prompt.

/// Why a request cannot be built: its base URL, proxy, credential, route or chat is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The base URL cannot be parsed.
    #[error("the base URL is not a URL: use one such as `https://api.openai.com/v1`")]
    InvalidBaseUrl,
    /// The base URL does not begin with `http://` or `https://` and a host.
    #[error("the base URL must begin with `http://` or `https://` and a host")]
    BaseUrlWithoutHost,
    /// The base URL has a query, which cannot precede a path.
    #[error("the base URL has a query: remove the `?` and everything after it")]
    BaseUrlWithQuery,
    /// The base URL contains a user or a password.
    #[error("the base URL contains credentials: pass them as a credential")]
    BaseUrlWithCredentials,
    /// The name of the model is empty.
    #[error("the name of the model is empty")]
    NoModel,
    /// The key has characters that are not allowed in a header.
    #[error("the credential has characters that are not allowed in a header: use printable ASCII")]
    InvalidCredential,
    /// The mock has no HTTP API.
    #[error("the mock provider has no HTTP API: pass it as a backend")]
    Mock,
    /// The text is not a route of an endpoint.
    #[error(
        "must be the path of a provider's API, such as \"/v1/chat/completions\", or all paths below \
         one, such as \"/v1/vision/*\"; at most 256 characters, without a query"
    )]
    RoutePath,
    /// The text is not the address of a proxy.
    #[error(
        "must be the address of an HTTP proxy, such as http://proxy.internal:3128, optionally with \
         user:password@ before the host"
    )]
    ProxyAddress,
    /// The proxy speaks SOCKS.
    #[error("must be an HTTP proxy, http:// or https://; SOCKS is not supported")]
    SocksProxy,
    /// The arguments of a tool call in the chat are not a JSON object, which this provider
    /// requires.
    #[error("the arguments of a call to the tool `{tool}` are not a JSON object")]
    Arguments {
        /// Name of the tool.
        tool: String,
    },
    /// The name of the model or the path cannot be part of a URL.
    #[error("cannot build the URL for this model: {0}")]
    InvalidUrl(String),
    /// The body cannot be serialized.
    #[error("cannot serialize the body as JSON: {0}")]
    Body(String),
}

impl From<http::Error> for RequestError {
    fn from(error: http::Error) -> Self {
        Self::InvalidUrl(error.to_string())
    }
}

impl From<serde_json::Error> for RequestError {
    fn from(error: serde_json::Error) -> Self {
        Self::Body(error.to_string())
    }
}
