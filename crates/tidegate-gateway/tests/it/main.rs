//! The gateway, against the simulator of providers and against scripts.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accounts;
mod call_observer;
mod calls;
mod changing;
mod greed;
mod keys;
mod leaving;
mod load;
mod log;
mod passing;
mod refusals;
mod sizes;
mod slow_bodies;
mod sockets;
mod stage;
mod streams;
mod timeouts;
mod trying;
mod wire;
