//! Wire formats of providers, from recorded examples and from the simulator.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod codecs;
mod failures;
