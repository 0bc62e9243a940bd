//! Integration tests on real servers: the store contract, several nodes, and server failures.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue has failed")]

mod access;
mod commands;
mod contract;
mod fixture;
mod keys;
mod memory_equivalence;
mod policies;
mod server_failures;
mod sharing;
