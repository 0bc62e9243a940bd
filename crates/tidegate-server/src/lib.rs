//! The Tidegate server: doors on one engine.
//!
//! A [`Server`] takes a validated plan and opens what it says; the [`Running`] server knows the
//! addresses that were really bound and how to stop without dropping a request. Each door speaks
//! one protocol and decides nothing by itself: every decision is one call to the engine.
//!
//! This crate reads no configuration and no environment, and never logs a key.

mod connections;
mod door;
mod drain;
mod listen;
mod served;
mod server;

pub use drain::{Drained, GRACE};
pub use server::{Running, Server, StartError};
