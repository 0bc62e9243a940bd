//! Replays against the oracle and against brute force, and what reports show.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod against_oracle;
mod reports;
mod searches;
