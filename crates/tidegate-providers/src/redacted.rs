//! Texts that are not shown.
//!
//! What people ask and models answer is not for logs, and `Debug` is how most of it gets there. Of
//! such a text `Debug` tells how long it is.

use std::fmt;

/// A text of a prompt or of an answer.
pub(crate) struct Redacted<'a>(pub(crate) &'a str);

impl fmt::Debug for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}
