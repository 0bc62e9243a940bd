//! Bounds on connections, heads and bodies, before any limit of the engine applies.

use std::time::Duration;

use tidegate_config::Listen;

use super::connections::Capacity;

/// Maximum size of a request body, in bytes.
pub(crate) const MAX_BODY: usize = 64 * 1024;

/// Maximum size of a request head, in bytes; also the read buffer of a connection.
pub(crate) const MAX_HEAD: usize = 16 * 1024;

/// Bounds on connections and waiting times. Every wait for a caller has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Maximum number of open connections; further ones wait to be accepted.
    pub(crate) connections: usize,
    /// Maximum number of open connections from one network (an IPv4 address, or the first 64 bits
    /// of an IPv6 address); further ones are refused.
    pub(crate) per_network: usize,
    /// Time from the first byte of a head to its last, and from the start of a connection to the
    /// end of its first head.
    pub(crate) head: Duration,
    /// Time from the end of the head to the last byte of the body.
    pub(crate) body: Duration,
    /// Time from the end of a response to the first byte of the next request.
    pub(crate) idle: Duration,
    /// Time without progress in sending a response. Progress means that the caller took enough for
    /// the kernel to accept more, which is 32 KiB: a reader of 100 kB/s stays connected, one that
    /// takes a byte now and then does not.
    pub(crate) write: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 10_000,
            per_network: 2_500,
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            write: Duration::from_secs(30),
        }
    }
}

impl Bounds {
    /// Returns the capacity of a listener, with the configured trusted proxies.
    pub(crate) fn capacity(&self, listen: &Listen) -> Capacity {
        Capacity {
            total: self.connections,
            per_network: self.per_network,
            trusted: listen.trusted_proxies.value.clone(),
        }
    }
}
