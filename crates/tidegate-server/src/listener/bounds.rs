//! How much a caller may ask of the door before it has asked anything of the engine.

use std::time::Duration;

use tidegate_config::Listen;

use super::connections::Capacity;

/// The largest body of a request, in bytes.
pub(crate) const MAX_BODY: usize = 64 * 1024;

/// The largest head of a request, in bytes; also what a connection buffers at most.
pub(crate) const MAX_HEAD: usize = 16 * 1024;

/// The bounds of time and number. Every wait for a caller has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Connections at once; others wait to be accepted.
    pub(crate) connections: usize,
    /// Connections at once from one network (an IPv4 address, or the first 64 bits of an IPv6
    /// address); others are refused.
    pub(crate) per_network: usize,
    /// From the first byte of a head to its last, and from the start of a connection to its first
    /// whole head.
    pub(crate) head: Duration,
    /// From the head to the last byte of the body.
    pub(crate) body: Duration,
    /// From an answer to the first byte of the next request.
    pub(crate) idle: Duration,
    /// Without the caller taking enough of a response for the kernel to have room for more of it,
    /// which is 32 KiB: a reader of 100 kB/s is not cut, one that takes a byte now and then is.
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
    /// How many connections there may be, with the peers that a plan trusts.
    pub(crate) fn capacity(&self, listen: &Listen) -> Capacity {
        Capacity {
            total: self.connections,
            per_network: self.per_network,
            trusted: listen.trusted_proxies.value.clone(),
        }
    }
}
