//! The in-process store against the contract, against floods and under threads.

#![cfg(not(any(loom, shuttle)))]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod clock;
mod contract;
mod direct;
mod fast_path;
mod growth;
mod overflow;
mod regressions;
mod snapshot;
