//! Who asks: the address of a client, also behind proxies.
//!
//! Anybody can write any address into a header, so headers count only as far as the chain of
//! proxies that are [trusted](TrustedProxies) reaches, read from the right: each proxy adds the
//! address of the one that it got the request from. None is trusted unless said so.
//!
//! ```
//! use http::HeaderMap;
//! use tidegate_http::identity::{ClientAddress, Forwarding, TrustedProxies};
//!
//! let proxies: TrustedProxies = "10.0.0.0/8".parse()?;
//! let clients = ClientAddress::behind(proxies, Forwarding::XForwardedFor);
//! let mut headers = HeaderMap::new();
//! headers.insert("x-forwarded-for", "203.0.113.9, 198.51.100.7, 10.0.0.2".parse()?);
//!
//! // A trusted proxy says so, and the first hop that is not trusted is the client.
//! assert_eq!(clients.find("10.0.0.1".parse()?, &headers).to_string(), "198.51.100.7");
//! // A stranger can say whatever it likes.
//! assert_eq!(clients.find("192.0.2.1".parse()?, &headers).to_string(), "192.0.2.1");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod forwarded;
mod network;
mod proxies;

use std::net::{IpAddr, SocketAddr};

use http::header::{HeaderMap, HeaderName};
use ipnet::IpNet;

pub use network::{IPV6_CLIENT_BITS, client_network};
pub use proxies::{ProxyError, TrustedProxies};

/// The address at the other end of the connection, as a request extension. Whoever accepts
/// connections puts it there; with the feature `axum`, `ConnectInfo<SocketAddr>` does as well.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

impl std::fmt::Debug for PeerAddr {
    /// Addresses name people, and are not shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerAddr(..)")
    }
}

/// Where proxies write down whom they got a request from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forwarding {
    /// `X-Forwarded-For`: addresses, the nearest last.
    XForwardedFor,
    /// `Forwarded` (RFC 7239): the same with more words.
    Forwarded,
    /// `X-Forwarded-For` or `Forwarded`, whichever there is. If there are both and they name
    /// different clients, a proxy has passed one of them on as it came, and neither counts.
    Either,
    /// A field with the address of the client alone, which the proxy sets and does not pass on,
    /// such as `CF-Connecting-IP`.
    Single(HeaderName),
}

/// Why a prefix cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an IPv6 prefix has 32 to 128 bits, not {0}")]
pub struct PrefixError(u8);

/// How the address of a client is found, and how much of it counts.
///
/// [`client_network`] says how much of an address is one client.
#[derive(Clone, Debug)]
pub struct ClientAddress {
    proxies: TrustedProxies,
    forwarding: Option<Forwarding>,
    prefix: u8,
}

impl ClientAddress {
    /// The client is the other end of the connection, whatever headers say.
    #[must_use]
    pub const fn peer() -> Self {
        Self { proxies: TrustedProxies::NONE, forwarding: None, prefix: IPV6_CLIENT_BITS }
    }

    /// The client is whom these proxies got the request from.
    #[must_use]
    pub const fn behind(proxies: TrustedProxies, forwarding: Forwarding) -> Self {
        Self { proxies, forwarding: Some(forwarding), prefix: IPV6_CLIENT_BITS }
    }

    /// Another length of the IPv6 prefix that is one client: 64 unless said otherwise.
    ///
    /// # Errors
    /// When it is not between 32 and 128.
    pub fn ipv6_prefix(mut self, bits: u8) -> Result<Self, PrefixError> {
        if !(32..=128).contains(&bits) {
            return Err(PrefixError(bits));
        }
        self.prefix = bits;
        Ok(self)
    }

    /// The address of the client of a request that came from this peer.
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

    /// Whether this peer is a trusted proxy.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.proxies.contains(peer)
    }

    /// From hop to hop, the nearest first, until one is not trusted. What is no address ends the
    /// walk: then the last proxy that is known is as near as we get.
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

    /// The part of an address that counts: see [`client_network`].
    #[must_use]
    pub fn network(&self, address: IpAddr) -> IpNet {
        client_network(address, self.prefix)
    }
}

impl Default for ClientAddress {
    fn default() -> Self {
        Self::peer()
    }
}
