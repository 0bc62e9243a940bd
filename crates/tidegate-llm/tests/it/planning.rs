//! Constraints, plans and settings.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod constraints;
mod keys;
mod planner;
mod settings;
