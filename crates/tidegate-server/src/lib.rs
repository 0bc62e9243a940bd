//! The Tidegate server: listeners on one engine.
//!
//! A [`Server`] takes the layers of a configuration and opens what they say; the [`Running`] server
//! knows the addresses that were really bound, follows the configuration as it changes, and knows
//! how to stop without dropping a request. Each API speaks one protocol and decides nothing by
//! itself: every decision is one call to the engine. The [`Database`] keeps what was changed at run
//! time.
//!
//! This crate reads no environment, and never logs a key.

mod access_log;
mod api;
mod call_observer;
mod configuration;
mod database;
mod events;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod listener;
mod metrics;
mod permits;
mod reach;
mod server;
mod tokens;

pub use configuration::ChangeError;
pub use database::{Audit, AutoMigrate, Change, Database, DatabaseError, Migrated, Note, Stored};
pub use listener::drain::{Drained, GRACE};
pub use reach::{Reached, configured_providers, reach};
pub use server::{Running, Server, StartError, check_change, check_plan};
pub use tokens::{MintError, Minted, OpenToAll, TokenDigest, mint};
