//! Errors of decoding responses. None of them contains text of a response.

use std::fmt;

use serde_json::Value;

/// Why a response cannot be decoded.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The response is this error of the provider. It may quote the request, so neither `Debug` nor
    /// `Display` shows it.
    #[error("the provider reports an error")]
    ProviderError(Box<Value>),
    /// The body or an event is not JSON.
    #[error("not valid JSON (line {}, column {})", .0.line(), .0.column())]
    Json(#[from] serde_json::Error),
    /// A required field is missing.
    #[error("field `{0}` is missing")]
    Missing(&'static str),
    /// The body, or one event, is too large.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// Maximum size in bytes.
        limit: usize,
    },
    /// The response ends before it is complete.
    #[error("ends before it is complete")]
    Truncated,
    /// An earlier part of the stream could not be decoded.
    #[error("an earlier part could not be decoded")]
    AfterError,
}

impl DecodeError {
    pub(crate) fn failed(body: &Value) -> Self {
        Self::ProviderError(Box::new(body.clone()))
    }
}

impl fmt::Debug for DecodeError {
    /// Shows the `Display` text only, since the provider's error may quote the request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DecodeError({self})")
    }
}
