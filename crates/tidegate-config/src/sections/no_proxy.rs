//! Hosts that are reached without a proxy, in the syntax of `NO_PROXY`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;
use http::uri::Scheme;
use ipnet::IpNet;

/// Hosts that are reached without a proxy.
///
/// Each entry is one of:
///
/// - `*`: every host.
/// - A domain, optionally prefixed with `.` or `*.`: that host and all its subdomains.
/// - An IP address, or a network such as `10.0.0.0/8`. Host names are not resolved to match these.
/// - Any of these except a network, followed by `:port`: on that port only.
///
/// ```
/// use tidegate_config::NoProxy;
/// let no_proxy = NoProxy::new(["internal.test", "10.0.0.0/8", "127.0.0.1:11434"])?;
/// assert!(no_proxy.matches(&"https://llm.internal.test/v1".parse()?));
/// assert!(no_proxy.matches(&"http://127.0.0.1:11434".parse()?));
/// assert!(!no_proxy.matches(&"http://127.0.0.1:8000".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoProxy(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Any,
    Network(IpNet),
    /// In lower case, without leading or trailing dots.
    Domain(String),
}

/// An invalid `no_proxy` entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be hosts, domains such as .internal, IP addresses or networks such as 10.0.0.0/8, each \
     optionally with a port, or *"
)]
#[non_exhaustive]
pub struct NoProxyError;

impl NoProxy {
    /// Parses entries; empty ones are ignored.
    ///
    /// # Errors
    /// If an entry is invalid.
    pub fn new<'e>(entries: impl IntoIterator<Item = &'e str>) -> Result<Self, NoProxyError> {
        let entries = entries.into_iter().map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(str::parse).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether `uri` is reached without a proxy.
    #[must_use]
    pub fn matches(&self, uri: &Uri) -> bool {
        let host = uri.host().unwrap_or_default();
        let host = without_brackets(host).trim_end_matches('.').to_ascii_lowercase();
        let default_port = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(default_port);
        let on_port = |entry: &&Entry| entry.port.is_none_or(|only| only == port);
        self.0.iter().filter(on_port).any(|entry| entry.host.matches(&host))
    }
}

impl Host {
    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Network(network) => {
                host.parse().is_ok_and(|address: IpAddr| network.contains(&address.to_canonical()))
            }
            Self::Domain(domain) => {
                let above = host.strip_suffix(domain.as_str());
                above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
            }
        }
    }
}

impl FromStr for Entry {
    type Err = NoProxyError;

    fn from_str(text: &str) -> Result<Self, NoProxyError> {
        if let Ok(network) = text.parse() {
            return Ok(Self { host: Host::Network(network), port: None });
        }
        if let Some(network) = address(without_brackets(text)) {
            return Ok(Self { host: Host::Network(network), port: None });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().map_err(|_| NoProxyError)?)),
            None => (text, None),
        };
        if host == "*" {
            return Ok(Self { host: Host::Any, port });
        }
        if let Some(network) = address(without_brackets(host)) {
            return Ok(Self { host: Host::Network(network), port });
        }
        let domain = host.strip_prefix("*.").or_else(|| host.strip_prefix('.')).unwrap_or(host);
        let domain = domain.trim_end_matches('.').to_ascii_lowercase();
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if domain.is_empty() || !domain.bytes().all(is_allowed) {
            return Err(NoProxyError);
        }
        Ok(Self { host: Host::Domain(domain), port })
    }
}

/// Parses an IP address as a network of one host.
fn address(text: &str) -> Option<IpNet> {
    text.parse::<IpAddr>().ok().map(|address| address.to_canonical().into())
}

/// Removes the brackets of an IPv6 address.
fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

impl fmt::Display for NoProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Entry { host, port }) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match host {
                Host::Any => f.write_str("*")?,
                Host::Network(network) => network.fmt(f)?,
                Host::Domain(domain) => f.write_str(domain)?,
            }
            port.map_or(Ok(()), |port| write!(f, ":{port}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_entry_covers_only_its_hosts() {
        for (entry, url, covered) in [
            ("*", "https://api.openai.com", true),
            ("openai.com", "https://api.openai.com", true),
            (".openai.com", "https://openai.com", true),
            ("*.openai.com", "https://api.openai.com", true),
            ("OpenAI.com.", "https://API.openai.com.", true),
            ("openai.com", "https://notopenai.com", false),
            ("api.openai.com", "https://openai.com", false),
            ("openai.com:443", "https://openai.com", true),
            ("openai.com:8443", "https://openai.com", false),
            ("localhost", "http://localhost:11434", true),
            ("localhost", "http://127.0.0.1", false),
            ("127.0.0.1", "http://127.0.0.1:11434", true),
            ("127.0.0.1:80", "http://127.0.0.1:11434", false),
            ("10.0.0.0/8", "http://10.1.2.3", true),
            ("10.0.0.0/8", "http://11.1.2.3", false),
            ("10.0.0.0/8", "http://ten.test", false),
            ("::1", "http://[::1]:9", true),
            ("[::1]:9", "http://[::1]:9", true),
            ("[::1]:9", "http://[::1]:8", false),
            ("fd00::/8", "http://[fd12::1]", true),
            ("*:8080", "http://any.test:8080", true),
            ("*:8080", "http://any.test", false),
        ] {
            let no_proxy = NoProxy::new([entry]).unwrap();
            assert_eq!(no_proxy.matches(&url.parse().unwrap()), covered, "{entry} {url}");
        }
        assert!(!NoProxy::new(["", " "]).unwrap().matches(&"http://a.test".parse().unwrap()));
    }

    #[test]
    fn entry_without_a_host_is_rejected() {
        for entry in ["10.0.0.0/99", "http://a.test", "a b", "a.test:port", ".", "a*b"] {
            assert_eq!(NoProxy::new([entry]), Err(NoProxyError), "{entry}");
        }
    }
}
