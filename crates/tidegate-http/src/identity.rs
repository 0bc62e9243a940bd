//! Client identity: the address of a client, optionally behind proxies.
//!
//! Anyone can write any address into a header, so headers count only as far as the chain of
//! [trusted proxies](TrustedProxies) reaches. The chain is read from the right: each proxy appends
//! the address it received the request from. No proxy is trusted by default.
//!
//! ```
//! use http::HeaderMap;
//! use tidegate_http::identity::ClientAddress;
//!
//! let clients = ClientAddress::from_x_forwarded_for().trust_proxies(["10.0.0.0/8"])?;
//! let mut headers = HeaderMap::new();
//! headers.insert("x-forwarded-for", "203.0.113.9, 198.51.100.7, 10.0.0.2".parse()?);
//!
//! // The peer is a trusted proxy; the first untrusted hop is the client.
//! assert_eq!(clients.find("10.0.0.1".parse()?, &headers).to_string(), "198.51.100.7");
//! // Headers from an untrusted peer are ignored.
//! assert_eq!(clients.find("192.0.2.1".parse()?, &headers).to_string(), "192.0.2.1");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod forwarded;
mod network;
mod proxies;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use http::header::{HeaderMap, HeaderName};

pub use network::{ClientNetwork, IPV6_CLIENT_BITS, client_network};
pub use proxies::{ProxyError, TrustedProxies};

/// Request extension with the address of the other end of the connection. The code that accepts
/// connections sets it; with the feature `axum`, `ConnectInfo<SocketAddr>` works as well.
///
/// ```
/// use tidegate_http::identity::PeerAddr;
///
/// let mut request = http::Request::get("/").body(())?;
/// request.extensions_mut().insert(PeerAddr("192.0.2.7:4711".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

impl fmt::Debug for PeerAddr {
    /// Hides the address, which identifies a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerAddr(..)")
    }
}

/// The header in which proxies record where a request came from.
#[derive(Clone, Debug)]
enum Forwarding {
    XForwardedFor,
    Forwarded,
    Either,
    Single(HeaderName),
}

/// Error of an IPv6 prefix length out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("IPv6 prefix of {0} bits is out of range; choose 32 to 128 bits")]
pub struct PrefixError(u8);

/// How to find the address of a client, and how much of it identifies the client.
///
/// [`peer`](Self::peer) uses the other end of the connection. The `from_` constructors read a
/// header instead, but only from proxies named with [`trust_proxies`](Self::trust_proxies). Choose
/// the header that your proxy sets or overwrites itself.
///
/// ```
/// use std::net::IpAddr;
/// use tidegate_http::identity::ClientAddress;
///
/// // Strings, or addresses.
/// let clients = ClientAddress::from_x_forwarded_for().trust_proxies(["10.0.0.0/8", "::1"])?;
/// let proxy: IpAddr = "192.0.2.1".parse()?;
/// let clients = ClientAddress::from_header("cf-connecting-ip").trust_proxies([proxy])?;
///
/// let error = ClientAddress::from_forwarded().trust_proxies(["proxy.local"]).unwrap_err();
/// assert!(error.to_string().starts_with(r#"trusted proxy "proxy.local" is neither an IP address"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClientAddress {
    proxies: TrustedProxies,
    forwarding: Option<Forwarding>,
    prefix: u8,
}

impl ClientAddress {
    /// Uses the other end of the connection as the client and ignores headers.
    #[must_use]
    pub const fn peer() -> Self {
        Self { proxies: TrustedProxies::NONE, forwarding: None, prefix: IPV6_CLIENT_BITS }
    }

    /// Reads the client from `X-Forwarded-For` of trusted proxies: a list of addresses, nearest
    /// last.
    #[must_use]
    pub const fn from_x_forwarded_for() -> Self {
        Self::reading(Forwarding::XForwardedFor)
    }

    /// Reads the client from `Forwarded` (RFC 7239) of trusted proxies.
    #[must_use]
    pub const fn from_forwarded() -> Self {
        Self::reading(Forwarding::Forwarded)
    }

    /// Reads the client from `X-Forwarded-For` or `Forwarded` of trusted proxies, whichever is
    /// present. If both are present and name different clients, a proxy has passed one of them on
    /// unchanged, and neither counts.
    #[must_use]
    pub const fn from_either() -> Self {
        Self::reading(Forwarding::Either)
    }

    /// Reads the client from a header that holds only its address, such as `CF-Connecting-IP`.
    /// Trusted proxies must set it and never pass on what they received.
    ///
    /// # Panics
    /// Panics if `name` is not a valid header name. A parsed [`HeaderName`] never panics.
    #[must_use]
    #[track_caller]
    pub fn from_header(name: impl AsRef<str>) -> Self {
        Self::reading(Forwarding::Single(header_name(name.as_ref())))
    }

    const fn reading(forwarding: Forwarding) -> Self {
        Self {
            proxies: TrustedProxies::NONE,
            forwarding: Some(forwarding),
            prefix: IPV6_CLIENT_BITS,
        }
    }

    /// Trusts the headers of these proxies, and of no others: strings such as `10.0.0.1` and
    /// `10.0.0.0/8`, or [`IpAddr`]s. Has no effect without a `from_` constructor.
    ///
    /// # Errors
    /// Returns an error if an entry is neither an address nor a network.
    pub fn trust_proxies<P: fmt::Display>(
        self,
        proxies: impl IntoIterator<Item = P>,
    ) -> Result<Self, ProxyError> {
        Ok(self.trust(TrustedProxies::new(proxies)?))
    }

    /// Trusts the headers of proxies that are already parsed, such as those of a configuration
    /// file.
    #[must_use]
    pub fn trust(mut self, proxies: TrustedProxies) -> Self {
        self.proxies = proxies;
        self
    }

    /// Sets the length of the IPv6 prefix that counts as one client. The default is 64.
    ///
    /// # Errors
    /// Returns an error if `bits` is not between 32 and 128.
    pub fn ipv6_prefix(mut self, bits: u8) -> Result<Self, PrefixError> {
        if !(32..=128).contains(&bits) {
            return Err(PrefixError(bits));
        }
        self.prefix = bits;
        Ok(self)
    }

    /// Returns the client address of a request that came from `peer`.
    #[must_use]
    pub fn find(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        let Some(forwarding) = &self.forwarding else { return peer };
        if !self.proxies.contains(peer) {
            return peer;
        }
        match forwarding {
            Forwarding::XForwardedFor => self.walk(peer, forwarded::x_forwarded_for(headers)),
            Forwarding::Forwarded => self.walk(peer, forwarded::forwarded(headers)),
            Forwarding::Either => self.find_in_either(peer, headers),
            Forwarding::Single(name) => forwarded::single(headers, name).unwrap_or(peer),
        }
    }

    fn find_in_either(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let by_list = || self.walk(peer, forwarded::x_forwarded_for(headers));
        let by_standard = || self.walk(peer, forwarded::forwarded(headers));
        match (headers.contains_key("x-forwarded-for"), headers.contains_key("forwarded")) {
            (true, false) => by_list(),
            (false, true) => by_standard(),
            (true, true) => Some(by_list()).filter(|it| *it == by_standard()).unwrap_or(peer),
            (false, false) => peer,
        }
    }

    /// Returns whether `peer` is a trusted proxy.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.proxies.contains(peer)
    }

    /// Walks the hops, nearest first, up to the first untrusted one. A hop that is not an address
    /// ends the walk: the last known proxy is then as close to the client as the headers reach.
    fn walk(&self, peer: IpAddr, hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut client = peer;
        for hop in hops {
            let Some(hop) = hop else { return client };
            client = hop;
            if !self.proxies.contains(hop) {
                return client;
            }
        }
        client
    }

    /// Returns the part of `address` that identifies the client; see [`client_network`].
    #[must_use]
    pub fn network(&self, address: IpAddr) -> ClientNetwork {
        client_network(address, self.prefix)
    }
}

/// Parses a header name that a program chooses at startup.
///
/// # Panics
/// Panics if `name` is not a valid header name, as `HeaderName::from_static` and axum's routers do.
#[track_caller]
pub(crate) fn header_name(name: &str) -> HeaderName {
    HeaderName::try_from(name).unwrap_or_else(|_| {
        panic!(
            "header name {name:?} is not valid; use letters, digits and hyphens, such as x-api-key"
        )
    })
}

impl Default for ClientAddress {
    fn default() -> Self {
        Self::peer()
    }
}
