//! Integration tests of the gateway against the provider simulator and scripted providers.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accounts;
mod body_limits;
mod call_observer;
mod cancellation;
mod credentials;
mod fairness;
mod forwarding;
mod load;
mod log;
mod reconfiguration;
mod refusals;
mod request_kinds;
mod retries;
mod slow_callers;
mod sockets;
mod streams;
mod support;
mod timeouts;
mod transport;
mod waits;
