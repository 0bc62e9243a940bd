//! Which hosts and pages may ask: `Host` and `Origin`.
//!
//! Loopback is not authentication: a web page can make a browser call loopback addresses. It can
//! do so neither without its `Origin` nor, by rebinding a name, without that name in `Host`, and
//! not with a JSON body unless it is allowed to; so these are what is checked, the last one where
//! bodies are read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Uri};
use tidegate_config::AllowedHost;

use super::problem::Problem;

/// The hosts that a listener serves.
#[derive(Debug)]
pub(crate) struct HostCheck {
    own: SocketAddr,
    allowed: Vec<AllowedHost>,
}

impl HostCheck {
    /// The host check of a listener at `own`.
    pub(crate) fn new(own: SocketAddr, allowed: Vec<AllowedHost>) -> Self {
        Self { own, allowed }
    }

    /// Refuses a request for a foreign host, or from a foreign page.
    pub(crate) fn admit(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(Problem::NoHost);
        };
        let host = Authority::of(host).ok_or(Problem::NoHost)?;
        // A target in absolute form has a host of its own, which counts as well.
        let target = match uri.authority() {
            Some(authority) => Some(Authority::parse(authority.as_str()).ok_or(Problem::NoHost)?),
            None => None,
        };
        if !self.serves(&host) || target.is_some_and(|target| !self.serves(&target)) {
            return Err(Problem::ForeignHost);
        }
        let same = |origin| Authority::of_origin(origin).is_some_and(|page| page.is_same(&host));
        if headers.get_all(ORIGIN).iter().all(same) { Ok(()) } else { Err(Problem::ForeignOrigin) }
    }

    fn serves(&self, host: &Authority<'_>) -> bool {
        let own = host.port.unwrap_or(80) == self.own.port()
            && host.address().is_some_and(|address| address == self.own.ip());
        let allowed = |allowed: &AllowedHost| {
            host.host.eq_ignore_ascii_case(&allowed.host)
                && allowed.port.is_none_or(|port| host.port == Some(port))
        };
        own || host.is_loopback() || self.allowed.iter().any(allowed)
    }
}

/// A host and perhaps a port, as they stand in a header.
#[derive(Clone, Copy, Debug)]
struct Authority<'a> {
    /// Without a final dot; an IPv6 address stands in brackets.
    host: &'a str,
    port: Option<u16>,
}

impl<'a> Authority<'a> {
    fn of(header: &'a HeaderValue) -> Option<Self> {
        Self::parse(header.to_str().ok()?)
    }

    /// The authority of an `Origin`; `null` and anything but HTTP have none.
    fn of_origin(header: &'a HeaderValue) -> Option<Self> {
        let (scheme, authority) = header.to_str().ok()?.split_once("://")?;
        let default = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let page = Self::parse(authority)?;
        Some(Self { port: page.port.or(Some(default)), ..page })
    }

    fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim();
        let after_brackets = text.rfind(']').map_or(0, |end| end + 1);
        let (host, port) = match text[after_brackets..].find(':') {
            Some(colon) => {
                let (host, port) = text.split_at(after_brackets + colon);
                (host, Some(port[1..].parse().ok()?))
            }
            None => (text, None),
        };
        let host = host.strip_suffix('.').unwrap_or(host);
        if host.is_empty() { None } else { Some(Self { host, port }) }
    }

    fn address(&self) -> Option<IpAddr> {
        match self.host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            None => self.host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        }
    }

    fn is_loopback(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.address().is_some_and(|address| address.is_loopback())
    }

    /// Whether a page from here was served by the same port of the same host.
    fn is_same(&self, host: &Authority<'_>) -> bool {
        let same_host =
            self.host.eq_ignore_ascii_case(host.host) || (self.is_loopback() && host.is_loopback());
        same_host && self.port == host.port.or(Some(80))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(host: &str, origin: Option<&str>) -> Result<(), Problem> {
        let allowed = ["gate.example.org", "strict.example.org:8443"];
        let allowed = allowed.iter().map(|host| host.parse().unwrap()).collect();
        let check = HostCheck::new("10.1.2.3:8080".parse().unwrap(), allowed);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        check.admit(&Uri::from_static("/"), &headers)
    }

    #[test]
    fn loopback_the_own_address_and_configured_hosts_are_served() {
        for host in [
            "localhost",
            "LOCALHOST:1",
            "localhost.:8080",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]:8080",
            "[::1]",
            "10.1.2.3:8080",
            "gate.example.org",
            "Gate.Example.org:9",
            "strict.example.org:8443",
        ] {
            assert!(verdict(host, None).is_ok(), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.1.2.3",
            "10.1.2.3:81",
            "10.1.2.4:8080",
            "[::2]:8080",
            "strict.example.org",
            "strict.example.org:80",
            "127.0.0.1@evil.example",
        ] {
            assert!(matches!(verdict(host, None), Err(Problem::ForeignHost)), "{host}");
        }
        for host in ["", ":8080", "localhost:port", "localhost:99999", "."] {
            assert!(matches!(verdict(host, None), Err(Problem::NoHost)), "{host:?}");
        }
    }

    #[test]
    fn only_pages_of_the_same_door_may_ask() {
        for (host, origin) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("127.0.0.1:8080", "http://localhost:8080"),
            ("localhost", "http://localhost"),
            ("gate.example.org:443", "https://gate.example.org"),
        ] {
            assert!(verdict(host, Some(origin)).is_ok(), "{origin}");
        }
        for origin in [
            "null",
            "https://evil.example",
            "http://127.0.0.1:3000",
            "http://localhost",
            "file://",
            "chrome-extension://127.0.0.1:8080",
            "http://localhost.evil.example:8080",
            "",
        ] {
            let verdict = verdict("127.0.0.1:8080", Some(origin));
            assert!(matches!(verdict, Err(Problem::ForeignOrigin)), "{origin}");
        }
    }
}
