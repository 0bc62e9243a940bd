//! The Tidegate server: HTTP, admin and gRPC listeners that share one engine.
//!
//! A [`Server`] is built from configuration layers and opens the listeners that they configure. The
//! [`Running`] server reports the addresses it bound, follows configuration changes, and shuts down
//! without dropping requests. Each API translates one protocol into calls to the engine and makes
//! no decisions of its own. The [`Database`] stores settings that were changed at run time.
//!
//! This crate does not read the environment and never logs a key.

mod access_log;
mod api;
mod call_observer;
mod configuration;
mod database;
mod events;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod in_process;
mod listener;
mod metrics;
mod permits;
mod probe;
mod server;
mod tokens;

pub use configuration::ChangeError;
pub use database::{
    AuditEntry, AutoMigrate, ChangeOrigin, Database, DatabaseError, MigrationResult, SettingUpdate,
    StoredSettings,
};
pub use in_process::InProcess;
pub use listener::drain::{Drained, SHUTDOWN_GRACE};
pub use probe::{ProbeResult, configured_providers, probe_providers};
pub use server::{Running, Server, Sockets, StartError, check_change, check_config};
pub use tokens::{CreateTokenError, NewToken, TokenDigest, UnauthenticatedListener, create_token};
