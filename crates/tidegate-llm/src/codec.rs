//! Codecs: requests into the words of a provider, and its answers out of them. Sans I/O.

pub mod classify;
mod delay;
pub mod failure;
pub mod limits;
