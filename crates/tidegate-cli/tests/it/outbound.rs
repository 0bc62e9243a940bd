//! Calls through the program to a simulated provider: what callers see under limits, with many
//! concurrent calls, and when the provider fails.
//!
//! Each test has its own program and provider. Limits, charging rules and faults are set at the
//! provider. Callers are the official Python clients, without their retries, or plain HTTP.

mod concurrency;
mod concurrent_calls;
mod failures;
pub(crate) mod fixtures;
mod limits_shown;
mod lock_outs;
mod stalls;
mod tokens;
mod traffic;
mod unreachable;
mod usage;
