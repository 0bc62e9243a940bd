//! The gate from the outside: over real sockets against axum and tungstenite, and by hand where
//! no socket matters; with a clock that the tests move, so that every hint is exact.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod abandoned;
mod building;
mod closing;
mod costs;
mod golden;
mod granularity;
mod hooks;
mod keys;
mod manual;
mod pipeline;
mod servers;
mod session;
mod wire;
