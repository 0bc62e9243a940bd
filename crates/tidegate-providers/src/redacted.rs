//! Redaction of prompts and responses.
//!
//! Such text must not reach logs, and `Debug` is how most of it would. `Debug` of a redacted text
//! shows its length only.

use std::fmt;

/// Text of a prompt or of a response.
pub(crate) struct Redacted<'a>(pub(crate) &'a str);

impl fmt::Debug for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}
