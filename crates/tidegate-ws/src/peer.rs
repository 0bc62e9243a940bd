//! The client of a connection: application data, address and id.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Serialize, Serializer};
use tidegate_http::identity::{IPV6_CLIENT_BITS, client_network};

/// The client of a new connection, for [`Gate::connect`](crate::Gate::connect).
///
/// ```
/// use tidegate_ws::{Gate, Peer};
/// let gate = Gate::for_types(["PING"]).build()?;
/// let connection = gate.connect(Peer::new(()).ip("2001:db8:1:2:3:4:5:6".parse()?));
/// assert_eq!(connection.context("PING").ip(), Some("2001:db8:1:2::"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a peer has no effect until it is passed to `Gate::connect`"]
pub struct Peer<D> {
    pub(crate) data: D,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) id: Option<String>,
}

impl<D> Peer<D> {
    /// Creates a peer with the application's data.
    pub const fn new(data: D) -> Self {
        Self { data, ip: None, id: None }
    }

    /// Sets the client address: that of the socket, or one reported by a *trusted* proxy, never
    /// from a header that any client can send. Behind a proxy, the socket address is that of the
    /// proxy, and all clients would share its bucket: resolve the client address before the
    /// upgrade, with a list of trusted proxies.
    ///
    /// IPv6 addresses are truncated to their /64, since a client can choose any address in it.
    pub const fn ip(mut self, ip: IpAddr) -> Self {
        self.ip = Some(ip);
        self
    }

    /// Sets an id chosen by the application. It must be unique among all users of the store: two
    /// connections with one id share their buckets, and the first one dropped resets them. Slots
    /// are not affected: they are released with their messages.
    ///
    /// By default the gate generates a unique id.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }
}

impl<D> fmt::Debug for Peer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").finish_non_exhaustive()
    }
}

/// Formats an address for keys.
pub(crate) fn format_address(ip: IpAddr) -> Box<str> {
    client_network(ip, IPV6_CLIENT_BITS).addr().to_string().into()
}

/// Id of a connection. Cheap to clone. `Debug` hides it, because an id chosen by the application
/// may identify a person.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClientId(Arc<str>);

impl ClientId {
    pub(crate) fn new(id: &str) -> Self {
        Self(Arc::from(id))
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for ClientId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId(<{} bytes>)", self.0.len())
    }
}

/// Generator of connection ids: unique within the process by a counter, and across processes by a
/// random prefix with the entropy of the standard library's `RandomState`.
#[derive(Debug)]
pub(crate) struct IdGenerator {
    prefix: [u64; 2],
    next: AtomicU64,
}

impl IdGenerator {
    pub(crate) fn new() -> Self {
        let random = |input: u8| RandomState::new().hash_one(input);
        Self { prefix: [random(0), random(1)], next: AtomicU64::new(0) }
    }

    pub(crate) fn next(&self) -> String {
        let [high, low] = self.prefix;
        format!("{high:016x}{low:016x}-{:x}", self.next.fetch_add(1, Ordering::Relaxed))
    }
}
