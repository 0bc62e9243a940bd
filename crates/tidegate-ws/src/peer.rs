//! The client of a connection: application data, address and id.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use serde::{Serialize, Serializer};
use tidegate_http::identity::{ClientAddress, ClientNetwork, IPV6_CLIENT_BITS, client_network};

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
    pub(crate) network: Option<ClientNetwork>,
    pub(crate) id: Option<String>,
}

impl<D> Peer<D> {
    /// Creates a peer with the application's data.
    pub const fn new(data: D) -> Self {
        Self { data, network: None, id: None }
    }

    /// Sets the address of a client that is connected directly. Behind a proxy that is the address
    /// of the proxy, whose clients would share one bucket: use
    /// [`client_address`](Self::client_address).
    ///
    /// IPv6 addresses are truncated to their /64, since a client can choose any address in it.
    /// IPv4-mapped and NAT64 addresses count as the IPv4 addresses in them; see
    /// [`client_network`].
    pub fn ip(mut self, ip: IpAddr) -> Self {
        self.network = Some(client_network(ip, IPV6_CLIENT_BITS));
        self
    }

    /// Sets the address of a client behind proxies, from the address of the socket and the headers
    /// of the upgrade request. Headers count only if a trusted proxy sent them.
    ///
    /// Keys contain the first address of the client's network, without the length of its prefix.
    /// Use one [`ipv6_prefix`](ClientAddress::ipv6_prefix) for all connections that share limits:
    /// a client of a /48 would have the key of the first /64 in it.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use tidegate_ws::{ClientAddress, Gate, Peer};
    ///
    /// let gate = Gate::for_types(["PING"]).build()?;
    /// let clients = ClientAddress::from_header("cf-connecting-ip").trust_proxies(["10.0.0.0/8"])?;
    /// let mut headers = HeaderMap::new();
    /// headers.insert("cf-connecting-ip", "203.0.113.9".parse()?);
    /// let ip = |socket: &str| {
    ///     let peer = Peer::new(()).client_address(&clients, socket.parse().unwrap(), &headers);
    ///     gate.connect(peer).context("PING").ip().unwrap().to_owned()
    /// };
    /// assert_eq!(ip("10.0.0.1"), "203.0.113.9");
    /// assert_eq!(ip("198.51.100.7"), "198.51.100.7", "not a trusted proxy");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn client_address(
        mut self,
        clients: &ClientAddress,
        socket: IpAddr,
        headers: &HeaderMap,
    ) -> Self {
        self.network = Some(clients.network(clients.find(socket, headers)));
        self
    }

    /// Sets an id chosen by the application. It must be unique among all connections whose gates
    /// have a limiter in common: two with one id share their buckets, and the first one dropped
    /// resets them. Slots are not affected: they are released with their messages.
    ///
    /// By default the gate generates an id that is unique across gates and processes.
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

/// Id of a connection. Cheap to clone. `Debug` hides it, because an id chosen by the application
/// may identify a person.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClientId {
    text: Arc<str>,
    is_generated: bool,
}

impl ClientId {
    pub(crate) fn chosen(id: &str) -> Self {
        Self { text: Arc::from(id), is_generated: false }
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the gate generated the id, so that it identifies no person.
    pub(crate) const fn is_generated(&self) -> bool {
        self.is_generated
    }
}

impl Serialize for ClientId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId(<{} bytes>)", self.text.len())
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

    pub(crate) fn next(&self) -> ClientId {
        let [high, low] = self.prefix;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        ClientId { text: format!("{high:016x}{low:016x}-{number:x}").into(), is_generated: true }
    }
}
