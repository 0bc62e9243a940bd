//! Integration tests: over real sockets with axum and tungstenite, and directly where sockets do not
//! matter; with a manual clock, so that every hint is exact.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod allocations;
mod application_limits;
mod axum_sockets;
mod builder;
mod ceiling;
mod cleanup;
mod context;
mod costs;
mod dropped_futures;
mod error_frames;
mod fixture;
mod granularity;
mod hook_drain;
mod hooks;
mod keys;
mod observers;
mod outbox;
mod pipeline;
mod redis;
mod servers;
mod sockets;
mod two_stores;
