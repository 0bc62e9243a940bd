//! Fuzz targets for every parser of Tidegate that reads untrusted input.
//!
//! A [`Target`] passes any bytes to one parser and checks the invariants of the result, beyond the
//! absence of panics. [`TARGETS`] lists them. Two drivers run them: the tests of this crate, which
//! mutate the committed seeds for a second or two ([`mutate`]), and libFuzzer, which is guided by
//! coverage (`cargo xtask soak fuzz`; its program is `fuzz/libfuzzer`, outside the workspace).
//!
//! An input that failed once becomes a seed, so that every run tries it.
#![allow(clippy::unwrap_used, reason = "a target that cannot go on has found a failure")]

mod input;
pub mod mutate;
mod runtime;
pub mod seeds;
mod targets;

pub use targets::{TARGETS, Target, find};

/// Initializes lazy data, such as the token vocabulary, so that all inputs are counted alike.
pub fn prepare() {
    tidegate_providers::tokens::prepare();
}
