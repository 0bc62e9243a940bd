//! Why a request cannot be made. No error has a text of a prompt in it.

/// Why there can be no requests to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The base URL is no URL.
    #[error("the base URL is no URL")]
    NoUrl,
    /// The base URL begins with something else than `http://` or `https://` and a host.
    #[error("the base URL needs `http://` or `https://` and a host")]
    NoHost,
    /// The base URL has a query, which has no place before a path.
    #[error("the base URL has a query")]
    Query,
    /// The base URL has a user or a password in it.
    #[error("the base URL has credentials in it; give them as a credential")]
    Credentials,
    /// The model has no name.
    #[error("the model has no name")]
    NoModel,
    /// The key has characters that no header field can have.
    #[error("the credential cannot be sent in a header field")]
    Key,
    /// The mock has no API.
    #[error("the mock takes no requests")]
    Mock,
}

/// Why a chat cannot be put into the words of a provider.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The arguments of a call in the conversation are no JSON object, which this provider wants.
    #[error("the arguments of a call to the tool `{tool}` are no JSON object")]
    Arguments {
        /// The name of the tool.
        tool: String,
    },
    /// The address is no address with the name of the model in it.
    #[error("the address cannot be written")]
    Address(#[from] http::Error),
    /// The body cannot be written.
    #[error("the body cannot be written")]
    Body(#[from] serde_json::Error),
}
