//! The outbound stack, against the simulator of providers and against scripts.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod adapter;
mod handler;
mod log;
mod matrix;
mod models;
mod planning;
mod quota_use;
#[cfg(feature = "client")]
mod real_time;
mod recovery;
mod telemetry;
mod traffic;
mod wire;
