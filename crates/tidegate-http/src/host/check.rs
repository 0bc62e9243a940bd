//! Whether a request is for this listener and not from a page of another origin.
//!
//! Loopback is not authentication: a web page can make a browser call loopback addresses. It can
//! do so neither without its `Origin` nor, by rebinding a name, without that name in `Host`; so
//! both are checked.

use std::net::SocketAddr;

use http::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use http::uri::Uri;

use super::{AllowedHost, HostPort, HostPortError};

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The header `host` is missing, stands twice or is malformed.
    #[error("a request names its host, once, in the header `host`")]
    NoHost,
    /// The host is not served here.
    #[error("this host is not served here")]
    ForeignHost,
    /// A page of another origin sends the request.
    #[error("pages of another origin may not send requests here")]
    ForeignOrigin,
}

/// The hosts that a listener serves: loopback, its own address, and those that are allowed.
///
/// ```
/// use http::{HeaderMap, Uri};
/// use tidegate_http::host::{HostCheck, HostError};
///
/// let check = HostCheck::new("10.1.2.3:8080".parse()?, vec!["gate.example.org".parse()?]);
/// let request = |host: &'static str| {
///     let headers = HeaderMap::from_iter([(http::header::HOST, host.parse().unwrap())]);
///     check.check(&Uri::from_static("/"), &headers)
/// };
/// assert_eq!(request("gate.example.org:8080"), Ok(()));
/// assert_eq!(request("evil.example"), Err(HostError::ForeignHost));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct HostCheck {
    own: SocketAddr,
    allowed: Vec<AllowedHost>,
}

impl HostCheck {
    /// The check of a listener at `own`.
    #[must_use]
    pub const fn new(own: SocketAddr, allowed: Vec<AllowedHost>) -> Self {
        Self { own, allowed }
    }

    /// Checks the host of a request, and its origin if it names one.
    ///
    /// # Errors
    /// When the request is not to be served.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), HostError> {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(HostError::NoHost);
        };
        let host = requested(host.to_str().map_err(|_| HostError::NoHost)?)?;
        // A target in absolute form has a host of its own, which counts as well.
        let target = uri.authority().map(|target| requested(target.as_str())).transpose()?;
        if !self.serves(&host) || target.is_some_and(|target| !self.serves(&target)) {
            return Err(HostError::ForeignHost);
        }
        let same = |origin| is_same_origin(origin, &host);
        if headers.get_all(ORIGIN).iter().all(same) {
            Ok(())
        } else {
            Err(HostError::ForeignOrigin)
        }
    }

    fn serves(&self, host: &HostPort<'_>) -> bool {
        let own = host.port.unwrap_or(80) == self.own.port()
            && host.address().is_some_and(|address| address == self.own.ip());
        own || host.is_loopback() || self.allowed.iter().any(|allowed| allowed.covers(host))
    }
}

fn requested(text: &str) -> Result<HostPort<'_>, HostError> {
    HostPort::parse(text.trim()).map_err(|error| match error {
        HostPortError::Missing | HostPortError::Port => HostError::NoHost,
        HostPortError::Host => HostError::ForeignHost,
    })
}

/// Whether a page of this origin was served by the same port of the same host. `null` and anything
/// but HTTP is another origin.
fn is_same_origin(origin: &HeaderValue, host: &HostPort<'_>) -> bool {
    let parts = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let Some((scheme, page)) = parts else { return false };
    let default_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    let Ok(page) = HostPort::parse(page.trim()) else { return false };
    let same_host =
        page.name().eq_ignore_ascii_case(host.name()) || (page.is_loopback() && host.is_loopback());
    same_host && page.port.unwrap_or(default_port) == host.port.unwrap_or(80)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(host: &str, origin: Option<&str>) -> Result<(), HostError> {
        let allowed = ["gate.example.org", "strict.example.org:8443"];
        let allowed = allowed.iter().map(|host| host.parse().unwrap()).collect();
        let check = HostCheck::new("10.1.2.3:8080".parse().unwrap(), allowed);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        check.check(&Uri::from_static("/"), &headers)
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
            assert!(matches!(verdict(host, None), Err(HostError::ForeignHost)), "{host}");
        }
        for host in ["", ":8080", "localhost:port", "localhost:99999", "."] {
            assert!(matches!(verdict(host, None), Err(HostError::NoHost)), "{host:?}");
        }
    }

    #[test]
    fn only_pages_of_the_same_listener_may_ask() {
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
            assert!(matches!(verdict, Err(HostError::ForeignOrigin)), "{origin}");
        }
    }
}
