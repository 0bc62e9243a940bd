//! Why something cannot be written or read. No error has a text of a prompt or of an answer in it.

use std::fmt;

use serde_json::Value;

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

/// Why an answer cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The provider says that it failed.
    #[error("the provider reports an error")]
    Failed(ErrorBody),
    /// It is no JSON.
    #[error("it is no JSON")]
    Json(#[from] serde_json::Error),
    /// Something that every answer has is not there.
    #[error("it has no `{0}`")]
    Missing(&'static str),
    /// It, or one event of it, is larger than any answer.
    #[error("it is larger than {limit} bytes")]
    TooLong {
        /// What it may have.
        limit: usize,
    },
    /// It ends before it is complete.
    #[error("it ends in the middle")]
    Cut,
    /// It follows something that could not be read.
    #[error("it follows what cannot be read")]
    Spoilt,
}

impl DecodeError {
    pub(crate) fn failed(body: &Value) -> Self {
        Self::Failed(ErrorBody(Box::new(body.clone())))
    }
}

/// An error as the provider wrote it. It may quote the request, so that `Debug` does not show it.
#[derive(Clone, PartialEq)]
pub struct ErrorBody(Box<Value>);

impl ErrorBody {
    /// The JSON.
    #[must_use]
    pub fn as_value(&self) -> &Value {
        &self.0
    }
}

impl fmt::Debug for ErrorBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErrorBody").finish_non_exhaustive()
    }
}
