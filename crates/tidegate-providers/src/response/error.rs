//! Why an answer cannot be read. No error has a text of an answer in it.

use std::fmt;

use serde_json::Value;

/// Why an answer cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The provider says that it failed.
    #[error("the provider reports an error")]
    Failed(ErrorBody),
    /// It is no JSON.
    #[error("it is not JSON (line {}, column {})", .0.line(), .0.column())]
    Json(#[from] serde_json::Error),
    /// Something that every answer has is not there.
    #[error("it has no field `{0}`")]
    Missing(&'static str),
    /// It, or one event of it, is larger than any answer.
    #[error("it is larger than {limit} bytes")]
    TooLong {
        /// What it may have.
        limit: usize,
    },
    /// It ends before it is complete.
    #[error("it ends before it is complete")]
    Cut,
    /// It follows something that could not be read.
    #[error("it follows a part that cannot be read")]
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
