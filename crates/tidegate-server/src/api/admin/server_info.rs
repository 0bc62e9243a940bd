//! What the server says about itself: version, time since its start, and bound addresses.
//!
//! The addresses differ from the configured ones if a port is 0, and after a change that needs a
//! restart.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;
use tokio::time::Instant;

use super::providers::millis;

/// The start of the server and its listeners.
#[derive(Debug)]
pub(crate) struct ServerInfo {
    started: Instant,
    listeners: BTreeMap<&'static str, SocketAddr>,
}

/// The part of the configuration document about the server.
#[derive(Debug, Serialize)]
pub(super) struct ServerJson<'s> {
    version: &'static str,
    uptime_ms: u64,
    listeners: &'s BTreeMap<&'static str, SocketAddr>,
}

impl ServerInfo {
    /// Creates the information of a server that starts now.
    pub(crate) fn new(listeners: impl IntoIterator<Item = (&'static str, SocketAddr)>) -> Self {
        Self { started: Instant::now(), listeners: listeners.into_iter().collect() }
    }

    pub(super) fn json(&self) -> ServerJson<'_> {
        ServerJson {
            version: env!("CARGO_PKG_VERSION"),
            uptime_ms: millis(self.started.elapsed()),
            listeners: &self.listeners,
        }
    }
}
