//! The library as its users see it.

#![cfg(not(shuttle))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod admission;
mod batch;
mod calendar;
mod direct;
mod guard;
mod pacing;
mod reconfigure;
mod retirement;
mod verbs;
