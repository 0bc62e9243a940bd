//! Calls through the built program to a simulated provider on a socket: what a caller sees when
//! limits bind, when many call at once, and when the provider is in trouble.
//!
//! Each test has its own program and its own provider. Limits, charging rules and faults are set at
//! the provider; callers are the official Python clients, without their retries, or plain HTTP.

mod concurrency;
mod crowds;
mod failures;
mod limits_shown;
mod lock_outs;
pub(crate) mod stage;
mod stalls;
mod tokens;
mod traffic;
mod unreachable;
mod usage;
