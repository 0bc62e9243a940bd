//! Every parser of Tidegate that meets the network, as fuzz targets.
//!
//! A [`Target`] is a function that takes any bytes, gives them to one parser and checks what must
//! hold for whatever comes out of it: that it panics for nothing is the least of it. [`TARGETS`] is
//! the list. Two drivers run it: the tests of this crate, which mutate the committed seeds for a
//! second or two ([`mutate`]), and libFuzzer, which is guided by coverage (`cargo xtask soak fuzz`;
//! its program is `fuzz/libfuzzer`, outside of the workspace).
//!
//! An input that failed once becomes a seed, so that it is tried on every run.
#![allow(clippy::unwrap_used, reason = "a target that cannot go on has found a failure")]

mod input;
pub mod mutate;
mod runtime;
pub mod seeds;
mod targets;

pub use targets::{TARGETS, Target, find};

/// Reads what is read once, such as the vocabulary that counts tokens, so that the first input does
/// not take longer than the others.
pub fn prepare() {
    let _ = tidegate_providers::tokens::count("tide");
}
