//! Limits as providers tell them in header fields.
