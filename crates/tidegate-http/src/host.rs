//! Parsing of `host:port` as found in header fields, URLs and configuration files, and the check of
//! the host and origin of a request.

mod check;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

pub use check::{HostCheck, HostError, reject_browser_requests};

/// Error of parsing a [`HostPort`] or an [`AllowedHost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostPortError {
    /// The host is missing.
    #[error("the host is missing")]
    Missing,
    /// The host is neither a name nor an address.
    #[error("the host is neither a name, an IPv4 address nor an IPv6 address in brackets")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
}

/// A host with an optional port, borrowed from the text it was parsed from.
///
/// ```
/// use tidegate_http::host::{HostPort, HostPortError};
///
/// let parsed = HostPort::parse("[::1]:8080")?;
/// assert_eq!((parsed.host(), parsed.port()), ("[::1]", Some(8080)));
/// assert!(parsed.is_loopback());
/// assert_eq!(HostPort::parse("example.org")?.port(), None);
/// assert_eq!(HostPort::parse("example.org:http"), Err(HostPortError::Port));
/// # Ok::<(), HostPortError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPort<'a> {
    host: &'a str,
    port: Option<u16>,
}

impl<'a> HostPort<'a> {
    /// Parses `host` or `host:port`. The host is a name of ASCII letters, digits, `-`, `.` and `_`,
    /// an IPv4 address, or an IPv6 address in brackets.
    ///
    /// # Errors
    /// Returns an error for any other text.
    pub fn parse(text: &'a str) -> Result<Self, HostPortError> {
        // Colons inside brackets belong to the IPv6 address.
        let end = text.rfind(']').map_or(0, |bracket| bracket + 1);
        let (host, port) = match text[end..].rfind(':') {
            Some(colon) => (&text[..end + colon], Some(&text[end + colon + 1..])),
            None => (text, None),
        };
        if matches!(host, "" | ".") {
            return Err(HostPortError::Missing);
        }
        if !is_host(host) {
            return Err(HostPortError::Host);
        }
        let port = port.map(parse_port).transpose()?;
        Ok(Self { host, port })
    }

    /// Returns the host as written; an IPv6 address is in brackets.
    #[must_use]
    pub const fn host(&self) -> &'a str {
        self.host
    }

    /// Returns the port, if the text has one.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns the host as an address, or `None` if it is a name.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        match in_brackets(self.host) {
            Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            None => self.name().parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        }
    }

    /// Returns whether the host is `localhost` or a loopback address.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.name().eq_ignore_ascii_case("localhost")
            || self.address().is_some_and(|address| address.is_loopback())
    }

    /// The host without the trailing dot of a fully qualified name.
    fn name(&self) -> &'a str {
        self.host.strip_suffix('.').unwrap_or(self.host)
    }
}

/// A host for which requests are accepted: on any port, unless it names one.
///
/// ```
/// use tidegate_http::host::AllowedHost;
///
/// let allowed: AllowedHost = "Gate.Example.org:8443".parse()?;
/// assert_eq!((allowed.host(), allowed.port()), ("gate.example.org", Some(8443)));
/// // An IPv6 address needs no brackets if there is no port.
/// assert_eq!("2001:db8::1".parse::<AllowedHost>()?.to_string(), "[2001:db8::1]");
/// # Ok::<(), tidegate_http::host::HostPortError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedHost {
    host: String,
    port: Option<u16>,
}

impl AllowedHost {
    /// Returns the name or address in lower case; an IPv6 address is in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the only port accepted, or `None` if any is.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    fn matches(&self, requested: &HostPort<'_>) -> bool {
        requested.name().eq_ignore_ascii_case(&self.host)
            && self.port.is_none_or(|port| requested.port == Some(port))
    }
}

impl FromStr for AllowedHost {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<Self, HostPortError> {
        // A bare IPv6 address contains colons that do not separate a port.
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Self { host: format!("[{address}]"), port: None });
        }
        let parsed = HostPort::parse(text)?;
        Ok(Self { host: parsed.name().to_ascii_lowercase(), port: parsed.port })
    }
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

fn is_host(host: &str) -> bool {
    match in_brackets(host) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
    }
}

fn in_brackets(host: &str) -> Option<&str> {
    host.strip_prefix('[')?.strip_suffix(']')
}

fn parse_port(text: &str) -> Result<u16, HostPortError> {
    // `u16::from_str` alone would allow a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = if digits { text.parse().ok() } else { None };
    port.filter(|port| *port > 0).ok_or(HostPortError::Port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_separated() {
        let parse = |text| HostPort::parse(text).map(|parsed| (parsed.host, parsed.port));
        for (text, expected) in [
            ("example.org", ("example.org", None)),
            ("example.org.:80", ("example.org.", Some(80))),
            ("10.1.2.3:65535", ("10.1.2.3", Some(65_535))),
            ("[2001:db8::1]", ("[2001:db8::1]", None)),
            ("[::1]:1", ("[::1]", Some(1))),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        for (error, texts) in [
            (HostPortError::Missing, &["", ":80", ".", ".:80"][..]),
            (HostPortError::Host, &["::1", "[::1", "[secret]", "a b", "a@b", "a,b", "[::1]x:1"]),
            (HostPortError::Port, &["a:", "a:0", "a:+1", "a:65536", "a:b", "[::1]:"]),
        ] {
            for text in texts {
                assert_eq!(parse(text), Err(error), "{text:?}");
            }
        }
    }

    #[test]
    fn loopback_is_recognized_by_name_and_by_address() {
        let is_loopback = |text| HostPort::parse(text).unwrap().is_loopback();
        for text in ["localhost", "LOCALHOST.:80", "127.9.9.9", "[::1]:8080"] {
            assert!(is_loopback(text), "{text}");
        }
        for text in ["localhost.example", "128.0.0.1", "[::2]", "127.0.0.1.example"] {
            assert!(!is_loopback(text), "{text}");
        }
    }
}
