//! Why an answer cannot be read. No error has a text of an answer in it.

use std::fmt;

use serde_json::Value;

/// Why an answer cannot be read.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The provider says that it failed, in this JSON. It may quote the request, so that neither
    /// `Debug` nor `Display` shows it.
    #[error("the provider reports an error")]
    Failed(Box<Value>),
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
        Self::Failed(Box::new(body.clone()))
    }
}

impl fmt::Debug for DecodeError {
    /// The text of the error, since the body of a provider's error may quote the request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DecodeError({self})")
    }
}
