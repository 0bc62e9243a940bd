//! The part of an address that identifies a client.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Default number of bits of an IPv6 address that identify a client. A household or server has at
/// least a /64 and can use a new address from it for every request.
pub const IPV6_CLIENT_BITS: u8 = 64;

/// The addresses that count as one client: an IPv4 address, or an IPv6 prefix. Made by
/// [`client_network`] and [`Head::client`](crate::Head::client).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientNetwork(IpNet);

impl ClientNetwork {
    /// Returns the first address of the network.
    #[must_use]
    pub fn addr(&self) -> IpAddr {
        self.0.addr()
    }

    /// Returns the number of leading bits that identify the network: 32 for IPv4.
    #[must_use]
    pub fn prefix_len(&self) -> u8 {
        self.0.prefix_len()
    }

    /// Returns whether `address` belongs to the network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl fmt::Display for ClientNetwork {
    /// Writes the network in CIDR notation, such as `2001:db8:1:2::/64`. It identifies a person:
    /// use it for keys, not for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientNetwork(..)")
    }
}

/// Returns the part of an address that identifies a client: all of IPv4, the first `ipv6_bits` of
/// IPv6.
///
/// IPv4-mapped addresses (`::ffff:192.0.2.1`) count as IPv4. So do NAT64 addresses
/// (`64:ff9b::192.0.2.1`): otherwise all IPv4 clients behind a translator would be one client. Under
/// the NAT64 prefix for local use (`64:ff9b:1::/48`) every address is a client of its own: the
/// operator chooses where in it the IPv4 address is, and one IPv4 address behind two translators can
/// be two hosts. Values above 128 mean 128.
///
/// ```
/// use tidegate_http::identity::{IPV6_CLIENT_BITS, client_network};
///
/// let client = |address: &str| client_network(address.parse().unwrap(), IPV6_CLIENT_BITS);
/// assert_eq!(client("2001:db8:1:2:3:4:5:6").to_string(), "2001:db8:1:2::/64");
/// assert_eq!(client("2001:db8:1:2:3:4:5:6").addr().to_string(), "2001:db8:1:2::");
/// assert_eq!(client("::ffff:192.0.2.1").to_string(), "192.0.2.1/32");
/// assert_eq!(client("64:ff9b::192.0.2.1").to_string(), "192.0.2.1/32");
/// assert_eq!(client("64:ff9b:1::192.0.2.1").to_string(), "64:ff9b:1::c000:201/128");
/// ```
#[must_use]
pub fn client_network(address: IpAddr, ipv6_bits: u8) -> ClientNetwork {
    let network = match address.to_canonical() {
        IpAddr::V4(address) => IpNet::V4(Ipv4Net::from(address)),
        IpAddr::V6(address) => match translated(address) {
            Some(address) => IpNet::V4(Ipv4Net::from(address)),
            None if is_translated_locally(address) => IpNet::V6(address.into()),
            None => {
                let net = Ipv6Net::new(address, ipv6_bits).unwrap_or_else(|_| address.into());
                IpNet::V6(net.trunc())
            }
        },
    };
    ClientNetwork(network)
}

/// Extracts the IPv4 address from an address with the well-known NAT64 prefix (RFC 6052).
const fn translated(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.octets() {
        [0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => {
            Some(Ipv4Addr::new(a, b, c, d))
        }
        _ => None,
    }
}

/// Returns whether an address has the NAT64 prefix for local use (RFC 8215).
const fn is_translated_locally(address: Ipv6Addr) -> bool {
    matches!(address.octets(), [0x00, 0x64, 0xff, 0x9b, 0x00, 0x01, ..])
}
