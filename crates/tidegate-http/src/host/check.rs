//! Checks that a request is meant for this listener and does not come from a page of another
//! origin.
//!
//! Loopback is no authentication: a web page can make a browser send requests to loopback
//! addresses. With DNS rebinding, `Host` contains the attacker's name. Cross-origin requests carry
//! `Origin`, except those whose response the page cannot read: links, images, GET forms. For these
//! the browser sends `Sec-Fetch-Site`. So all three are checked.

use std::net::SocketAddr;

use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use http::uri::Uri;

use super::{AllowedHost, HostPort, HostPortError};

/// Header in which browsers report the origin of a request. Pages cannot set it.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The `Host` header is missing, repeated or malformed.
    #[error("request must have exactly one valid `host` header")]
    NoHost,
    /// The host is not served here.
    #[error("this host is not served here")]
    ForeignHost,
    /// A page of another origin sent the request.
    #[error("requests from pages of another origin are not allowed")]
    ForeignOrigin,
}

/// The hosts that a listener serves: loopback, its own address, and allowed hosts.
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
    /// Creates the check for a listener at address `own`.
    #[must_use]
    pub const fn new(own: SocketAddr, allowed: Vec<AllowedHost>) -> Self {
        Self { own, allowed }
    }

    /// Checks the host of a request, its origin if it has one, and that no browser sends it for a
    /// page of another origin.
    ///
    /// # Errors
    /// Returns an error if the request must be rejected.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), HostError> {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(HostError::NoHost);
        };
        let host = parse_host(host.to_str().map_err(|_| HostError::NoHost)?)?;
        // An absolute-form target has a host of its own, which is checked as well.
        let target = uri.authority().map(|target| parse_host(target.as_str())).transpose()?;
        if !self.serves(&host) || target.is_some_and(|target| !self.serves(&target)) {
            return Err(HostError::ForeignHost);
        }
        let same = |origin| is_same_origin(origin, &host);
        let page = if headers.contains_key(ORIGIN) { Page::SameOrigin } else { Page::Unknown };
        if headers.get_all(ORIGIN).iter().all(same) && is_own_site(headers, page) {
            Ok(())
        } else {
            Err(HostError::ForeignOrigin)
        }
    }

    fn serves(&self, host: &HostPort<'_>) -> bool {
        let own = host.port.unwrap_or(80) == self.own.port()
            && host.address().is_some_and(|address| address == self.own.ip());
        own || host.is_loopback() || self.allowed.iter().any(|allowed| allowed.matches(host))
    }
}

/// Rejects requests that a browser sends for a page. For APIs that pages never use.
///
/// # Errors
/// Returns an error if the request has an origin, or comes from another site.
pub fn reject_browser_requests(headers: &HeaderMap) -> Result<(), HostError> {
    if headers.contains_key(ORIGIN) || !is_own_site(headers, Page::Unknown) {
        return Err(HostError::ForeignOrigin);
    }
    Ok(())
}

/// What is known about the page that sent a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    /// The request has an `Origin`, and it is this listener's own.
    SameOrigin,
    Unknown,
}

/// Returns whether `Sec-Fetch-Site`, if present, names a page of this origin or a user who entered
/// the address. Another port of the same host is the same site but a different origin. Unknown
/// values are rejected.
fn is_own_site(headers: &HeaderMap, page: Page) -> bool {
    headers.get_all(SEC_FETCH_SITE).iter().all(|site| {
        let site = site.as_bytes().trim_ascii();
        site.eq_ignore_ascii_case(b"same-origin")
            || site.eq_ignore_ascii_case(b"none")
            || (site.eq_ignore_ascii_case(b"same-site") && page == Page::SameOrigin)
    })
}

fn parse_host(text: &str) -> Result<HostPort<'_>, HostError> {
    HostPort::parse(text.trim()).map_err(|error| match error {
        HostPortError::Missing | HostPortError::Port => HostError::NoHost,
        HostPortError::Host => HostError::ForeignHost,
    })
}

/// Returns whether `origin` is the same host and port. `null` and any scheme but HTTP and HTTPS are
/// different origins.
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

    fn check_host(host: &str, origin: Option<&str>) -> Result<(), HostError> {
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
    fn loopback_own_address_and_allowed_hosts_are_served() {
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
            assert!(check_host(host, None).is_ok(), "{host}");
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
            assert!(matches!(check_host(host, None), Err(HostError::ForeignHost)), "{host}");
        }
        for host in ["", ":8080", "localhost:port", "localhost:99999", "."] {
            assert!(matches!(check_host(host, None), Err(HostError::NoHost)), "{host:?}");
        }
    }

    #[test]
    fn only_pages_of_the_same_origin_are_allowed() {
        for (host, origin) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("127.0.0.1:8080", "http://localhost:8080"),
            ("localhost", "http://localhost"),
            ("gate.example.org:443", "https://gate.example.org"),
        ] {
            assert!(check_host(host, Some(origin)).is_ok(), "{origin}");
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
            let result = check_host("127.0.0.1:8080", Some(origin));
            assert!(matches!(result, Err(HostError::ForeignOrigin)), "{origin}");
        }
    }

    fn from_site(sites: &[&str], origin: Option<&str>) -> Result<(), HostError> {
        let check = HostCheck::new("127.0.0.1:8080".parse().unwrap(), Vec::new());
        let mut headers =
            HeaderMap::from_iter([(HOST, HeaderValue::from_static("localhost:8080"))]);
        for site in sites {
            headers.append(SEC_FETCH_SITE, HeaderValue::from_str(site).unwrap());
        }
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        check.check(&Uri::from_static("/admin/events"), &headers)
    }

    /// Images, links and forms of another site send no `Origin`.
    #[test]
    fn sec_fetch_site_is_checked_without_origin() {
        for sites in [&[][..], &["none"], &["same-origin"], &["Same-Origin", " none"]] {
            assert!(from_site(sites, None).is_ok(), "{sites:?}");
        }
        for site in ["cross-site", "CROSS-SITE", "same-site", "", "none, cross-site", "none;x=1"] {
            let refused = Err(HostError::ForeignOrigin);
            assert_eq!(from_site(&[site], None), refused, "{site}");
            assert_eq!(from_site(&["none", site], None), refused, "{site}");
            assert_eq!(from_site(&[site, "none"], None), refused, "{site}");
        }
        let own = Some("http://localhost:8080");
        assert!(from_site(&["same-site"], own).is_ok());
        assert_eq!(from_site(&["cross-site"], own), Err(HostError::ForeignOrigin));
        let other = Some("http://localhost:3000");
        assert_eq!(from_site(&["same-origin"], other), Err(HostError::ForeignOrigin));
    }

    #[test]
    fn check_page_rejects_browser_requests() {
        let check = |name, value| reject_browser_requests(&HeaderMap::from_iter([(name, value)]));
        let text = HeaderValue::from_static;
        assert!(reject_browser_requests(&HeaderMap::new()).is_ok());
        assert!(check(SEC_FETCH_SITE, text("none")).is_ok());
        assert!(check(SEC_FETCH_SITE, text("cross-site")).is_err());
        assert!(check(SEC_FETCH_SITE, text("same-site")).is_err());
        assert!(check(ORIGIN, text("http://localhost:6072")).is_err());
    }
}
