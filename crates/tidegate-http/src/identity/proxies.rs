//! The list of trusted proxies.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

/// Error of an invalid entry in a list of trusted proxies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "trusted proxy {0:?} is neither an IP address nor a network; write an address such as 10.0.0.1 \
     or a network with its prefix length, such as 10.0.0.0/8"
)]
pub struct ProxyError(String);

/// The proxies whose forwarding headers are trusted, by address or network. The default is none.
///
/// Name only proxies, not networks that contain clients: a client in a trusted network can claim
/// any address.
///
/// ```
/// use tidegate_http::identity::TrustedProxies;
/// let proxies = TrustedProxies::new(["10.0.0.0/8", "2001:db8::1"])?;
/// // A comma-separated list works too, for configuration files and environment variables.
/// assert_eq!(proxies, "10.0.0.0/8, 2001:db8::1".parse()?);
/// assert!(proxies.contains("10.20.30.40".parse()?));
/// assert!(!proxies.contains("2001:db8::2".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Trusts no proxy.
    pub const NONE: Self = Self(Vec::new());

    /// Trusts these addresses and networks: strings such as `10.0.0.1` and `10.0.0.0/8`, or
    /// [`IpAddr`]s.
    ///
    /// # Errors
    /// Returns an error if an entry is neither an address nor a network.
    pub fn new<P: fmt::Display>(proxies: impl IntoIterator<Item = P>) -> Result<Self, ProxyError> {
        proxies
            .into_iter()
            .map(|proxy| network(&proxy.to_string()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns whether the proxy at this address is trusted.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|net| net.contains(&address))
    }
}

impl FromStr for TrustedProxies {
    type Err = ProxyError;

    /// Parses a comma-separated list of networks and addresses.
    fn from_str(text: &str) -> Result<Self, ProxyError> {
        Self::new(text.split(',').map(str::trim).filter(|entry| !entry.is_empty()))
    }
}

fn network(text: &str) -> Result<IpNet, ProxyError> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    let parsed = text.parse().or_else(|_| address()).map_err(|_| ProxyError(text.to_owned()))?;
    Ok(canonical(parsed))
}

/// Converts a network of IPv4-mapped addresses to IPv4.
fn canonical(net: IpNet) -> IpNet {
    match (net.addr().to_canonical(), net.prefix_len().checked_sub(96)) {
        (IpAddr::V4(address), Some(prefix)) if matches!(net, IpNet::V6(_)) => {
            Ipv4Net::new(address, prefix).map_or(net, IpNet::V4)
        }
        _ => net,
    }
}
