//! The shared store against the contract and against faults, on real servers.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod access;
mod beside_memory;
mod contract;
mod faults;
mod fixture;
mod keys;
mod policies;
mod sharing;
mod wire;
