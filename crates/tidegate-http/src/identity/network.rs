//! How much of an address is one client.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The bits of an IPv6 address that are one client unless said otherwise. A household or a server
/// has at least a /64 and can use a new address of it for every request.
pub const IPV6_CLIENT_BITS: u8 = 64;

/// The addresses that count as one client: an IPv4 address, or an IPv6 prefix. Made by
/// [`client_network`] and [`Head::client`](crate::Head::client).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientNetwork(IpNet);

impl ClientNetwork {
    /// The first address of the network.
    #[must_use]
    pub fn addr(&self) -> IpAddr {
        self.0.addr()
    }

    /// How many leading bits of the address belong to the network: 32 for IPv4.
    #[must_use]
    pub fn prefix_len(&self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether an address belongs to the network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl fmt::Display for ClientNetwork {
    /// The network in CIDR notation, such as `2001:db8:1:2::/64`. It identifies a person: it is
    /// for keys, not for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientNetwork(..)")
    }
}

/// The part of an address that is one client: all of IPv4, the first `ipv6_bits` of IPv6.
///
/// IPv4 addresses that are written as IPv6 (`::ffff:192.0.2.1`) are IPv4. So are those that a
/// translator writes so (NAT64, `64:ff9b::192.0.2.1`): else all of IPv4 would be one client behind
/// it. More than 128 bits are 128.
///
/// ```
/// use tidegate_http::identity::{IPV6_CLIENT_BITS, client_network};
///
/// let client = |address: &str| client_network(address.parse().unwrap(), IPV6_CLIENT_BITS);
/// assert_eq!(client("2001:db8:1:2:3:4:5:6").to_string(), "2001:db8:1:2::/64");
/// assert_eq!(client("2001:db8:1:2:3:4:5:6").addr().to_string(), "2001:db8:1:2::");
/// assert_eq!(client("::ffff:192.0.2.1").to_string(), "192.0.2.1/32");
/// assert_eq!(client("64:ff9b::192.0.2.1").to_string(), "192.0.2.1/32");
/// ```
#[must_use]
pub fn client_network(address: IpAddr, ipv6_bits: u8) -> ClientNetwork {
    let network = match address.to_canonical() {
        IpAddr::V4(address) => IpNet::V4(Ipv4Net::from(address)),
        IpAddr::V6(address) => {
            if let Some(address) = translated(address) {
                return ClientNetwork(IpNet::V4(Ipv4Net::from(address)));
            }
            let net = Ipv6Net::new(address, ipv6_bits).unwrap_or_else(|_| address.into());
            IpNet::V6(net.trunc())
        }
    };
    ClientNetwork(network)
}

/// The IPv4 address inside of one with the well-known prefix of translators (RFC 6052).
const fn translated(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.octets() {
        [0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => {
            Some(Ipv4Addr::new(a, b, c, d))
        }
        _ => None,
    }
}
