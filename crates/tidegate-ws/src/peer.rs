//! Who connects: the application's data, an address and an id.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Serialize, Serializer};
use tidegate_http::identity::{IPV6_CLIENT_BITS, client_network};

/// Who connects, for [`Gate::connect`](crate::Gate::connect).
///
/// ```
/// use tidegate_ws::{Gate, Peer};
/// let gate = Gate::for_types(["PING"]).build()?;
/// let connection = gate.connect(Peer::new(()).ip("2001:db8:1:2:3:4:5:6".parse()?));
/// assert_eq!(connection.context("PING").ip(), Some("2001:db8:1:2::"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a peer is for a gate to connect"]
pub struct Peer<D> {
    pub(crate) data: D,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) id: Option<String>,
}

impl<D> Peer<D> {
    /// A peer of which the application knows this.
    pub const fn new(data: D) -> Self {
        Self { data, ip: None, id: None }
    }

    /// With its address: that of the socket, or what a *trusted* proxy says. A header that anybody
    /// can send is no address. Behind a proxy the socket's address is the proxy's, and everybody
    /// would share its bucket: resolve it before the upgrade, with a list of trusted proxies.
    ///
    /// An IPv6 client has a /64 of addresses to choose from, so that prefix is what counts.
    pub const fn ip(mut self, ip: IpAddr) -> Self {
        self.ip = Some(ip);
        self
    }

    /// With an id of the application's own. It must be unique over all that share the store: two
    /// connections of one id share their buckets, and the first to go takes them along. Slots it
    /// leaves alone: they are given back when their messages are done.
    ///
    /// Without this the gate makes an id that no other gate makes.
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

/// The address as it stands in keys.
pub(crate) fn folded(ip: IpAddr) -> Box<str> {
    client_network(ip, IPV6_CLIENT_BITS).addr().to_string().into()
}

/// The id of a connection. Cheap to clone; not shown by `Debug`, since it may be the
/// application's own and name somebody.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClientId(Arc<str>);

impl ClientId {
    pub(crate) fn new(id: &str) -> Self {
        Self(Arc::from(id))
    }

    /// The id.
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

/// Makes ids that are unique in the process by their number, and among processes by chance: the
/// first part has as much of it as the standard library asks of the operating system.
#[derive(Debug)]
pub(crate) struct Ids {
    gate: [u64; 2],
    next: AtomicU64,
}

impl Ids {
    pub(crate) fn new() -> Self {
        let draw = |turn: u8| RandomState::new().hash_one(turn);
        Self { gate: [draw(0), draw(1)], next: AtomicU64::new(0) }
    }

    pub(crate) fn next(&self) -> String {
        let [high, low] = self.gate;
        format!("{high:016x}{low:016x}-{:x}", self.next.fetch_add(1, Ordering::Relaxed))
    }
}
