//! Integration tests of the in-process store.

#![cfg(not(any(loom, shuttle)))]
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod clock;
mod contract;
mod direct;
mod fast_path;
mod growth;
mod overflow;
mod regressions;
mod snapshot;
