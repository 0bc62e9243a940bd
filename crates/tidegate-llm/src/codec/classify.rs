//! The classifier: what to do about an error, by its status and its structured fields.
