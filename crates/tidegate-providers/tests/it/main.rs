//! What providers say, written down and as the simulator of providers says it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod codecs;
mod failures;
