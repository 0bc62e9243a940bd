//! The classifier: what to do about an error, by its status and its structured fields.

/// Rules of the user's.
#[derive(Clone, Debug, Default)]
pub struct Rules {}
