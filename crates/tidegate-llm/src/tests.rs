//! Tests of private modules. Tests of the public API are in `tests/`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../tests/it/log.rs"]
mod log;
mod permits;
mod trying;
