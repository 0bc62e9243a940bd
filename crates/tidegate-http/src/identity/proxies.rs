//! The proxies whose word counts.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

/// Why a list of proxies cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither an address nor a network such as 10.0.0.0/8")]
pub struct ProxyError(String);

/// Networks whose members are believed when they say whom they got a request from. None is, by
/// default.
///
/// Name the proxies alone, not networks that hold clients too: a client in a trusted network can
/// pretend to be anybody.
///
/// ```
/// use tidegate_http::identity::TrustedProxies;
/// let proxies: TrustedProxies = "10.0.0.0/8, 2001:db8::1".parse()?;
/// assert!(proxies.contains("10.20.30.40".parse()?));
/// assert!(!proxies.contains("2001:db8::2".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Nobody is trusted.
    pub const NONE: Self = Self(Vec::new());

    /// Whether the proxy at this address is trusted.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|net| net.contains(&address))
    }
}

impl FromIterator<IpNet> for TrustedProxies {
    fn from_iter<I: IntoIterator<Item = IpNet>>(nets: I) -> Self {
        Self(nets.into_iter().map(canonical).collect())
    }
}

impl FromStr for TrustedProxies {
    type Err = ProxyError;

    /// Networks and addresses, with commas in between.
    fn from_str(text: &str) -> Result<Self, ProxyError> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let net = |entry: &str| {
            let address = || entry.parse::<IpAddr>().map(IpNet::from);
            entry.parse().or_else(|_| address()).map_err(|_| ProxyError(entry.to_owned()))
        };
        entries.map(net).collect()
    }
}

/// A network of IPv4 addresses that is written as IPv6 is IPv4.
fn canonical(net: IpNet) -> IpNet {
    match (net.addr().to_canonical(), net.prefix_len().checked_sub(96)) {
        (IpAddr::V4(address), Some(prefix)) if matches!(net, IpNet::V6(_)) => {
            Ipv4Net::new(address, prefix).map_or(net, IpNet::V4)
        }
        _ => net,
    }
}
