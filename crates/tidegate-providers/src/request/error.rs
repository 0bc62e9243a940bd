//! Why a request cannot be made. No error has a text of a prompt in it.

/// Why there can be no request: to a target, to a path, or of a chat.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The base URL is no URL.
    #[error("the base URL is not a URL: it must be like `https://api.openai.com/v1`")]
    NoUrl,
    /// The base URL begins with something else than `http://` or `https://` and a host.
    #[error("the base URL must begin with `http://` or `https://` and a host")]
    NoHost,
    /// The base URL has a query, which has no place before a path.
    #[error("the base URL has a query: remove everything from `?` on")]
    Query,
    /// The base URL has a user or a password in it.
    #[error("the base URL has credentials in it: give them as a credential")]
    Credentials,
    /// The model has no name.
    #[error("the name of the model is empty")]
    NoModel,
    /// The key has characters that no header field can have.
    #[error("the credential has characters that a header field cannot have: use printable ASCII")]
    Key,
    /// The mock has no API.
    #[error("the mock takes no requests over HTTP: give it as a backend")]
    Mock,
    /// A text is no route.
    #[error(
        "must be the path of a provider's API, such as \"/v1/chat/completions\", or all paths below \
         one, such as \"/v1/vision/*\"; at most 256 characters, without a query"
    )]
    RoutePath,
    /// The arguments of a call in the conversation are no JSON object, which this provider wants.
    #[error("the arguments of a call to the tool `{tool}` are not a JSON object")]
    Arguments {
        /// The name of the tool.
        tool: String,
    },
    /// The address is no address with the name of the model in it.
    #[error("the address cannot be written with this model: {0}")]
    Address(String),
    /// The body cannot be written.
    #[error("the body cannot be written as JSON: {0}")]
    Body(String),
}

impl From<http::Error> for RequestError {
    fn from(error: http::Error) -> Self {
        Self::Address(error.to_string())
    }
}

impl From<serde_json::Error> for RequestError {
    fn from(error: serde_json::Error) -> Self {
        Self::Body(error.to_string())
    }
}
