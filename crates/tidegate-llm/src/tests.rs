//! Tests of the modules by themselves, which users do not meet: those of what users meet stand in
//! `tests/`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../tests/it/log.rs"]
mod log;
mod permits;
mod trying;
