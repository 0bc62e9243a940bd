//! The library as its users see it.

#![cfg(not(shuttle))]
#![expect(clippy::unwrap_used, reason = "unwrap fails the test")]

mod admission;
mod batch;
mod calendar;
mod direct;
mod guard;
mod operations;
mod pacing;
mod reconfigure;
mod retirement;
mod take_store;
mod wall_clock;
