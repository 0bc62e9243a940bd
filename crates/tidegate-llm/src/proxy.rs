//! HTTP proxies between this program and a provider.
//!
//! As with curl, `https://` URLs go through a tunnel (`CONNECT`), and `http://` URLs are sent to
//! the proxy in absolute form. No address bypasses the proxy implicitly, not even loopback
//! addresses.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use tidegate_providers::request::RequestError;

/// Address of an HTTP proxy, with optional credentials. Neither `Debug` nor `Display` shows the
/// credentials.
///
/// ```
/// use tidegate_llm::proxy::Proxy;
/// let proxy: Proxy = "http://user:secret@proxy.test:3128".parse()?;
/// assert_eq!(proxy.to_string(), "http://proxy.test:3128");
/// assert_eq!(proxy.authorization().unwrap(), "Basic dXNlcjpzZWNyZXQ=");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    uri: Uri,
    authorization: Option<HeaderValue>,
}

impl Proxy {
    /// Returns scheme, host and port.
    #[must_use]
    pub const fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Returns the value of `Proxy-Authorization`, if the address has credentials. It is marked as
    /// sensitive.
    #[must_use]
    pub const fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// Returns host and port, for logs and errors.
    #[must_use]
    pub fn host_port(&self) -> &str {
        self.uri.authority().map_or("", Authority::as_str)
    }
}

impl FromStr for Proxy {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (Scheme::HTTP, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (Scheme::HTTPS, rest),
            Some((scheme, _)) if scheme.to_ascii_lowercase().starts_with("socks") => {
                return Err(RequestError::SocksProxy);
            }
            Some(_) => return Err(RequestError::ProxyAddress),
            // `http` is the default scheme, as for curl.
            None => (Scheme::HTTP, text),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // A password may contain `@`, so the last one ends it.
        let (user, server) = match rest.rsplit_once('@') {
            Some((user, server)) => (Some(user), server),
            None => (None, rest),
        };
        let default_port = if scheme == Scheme::HTTPS { 443 } else { 80 };
        let uri = address(scheme, server, default_port).ok_or(RequestError::ProxyAddress)?;
        let authorization = user.map(basic_auth).transpose()?;
        Ok(Self { uri, authorization })
    }
}

/// Builds the URL of a host with an explicit port.
fn address(scheme: Scheme, server: &str, default_port: u16) -> Option<Uri> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    let authority: Authority = server.parse().ok().filter(|_| server.bytes().all(plain))?;
    let port = match server.strip_prefix(authority.host())? {
        "" => default_port,
        _ => authority.port_u16().filter(|port| *port != 0)?,
    };
    let host = Some(authority.host()).filter(|host| !host.is_empty())?;
    let authority = Authority::try_from(format!("{host}:{port}")).ok()?;
    let parts = Uri::builder().scheme(scheme).authority(authority);
    parts.path_and_query(PathAndQuery::from_static("/")).build().ok()
}

/// Builds the header value of a user and a password, which may be percent-encoded.
fn basic_auth(user: &str) -> Result<HeaderValue, RequestError> {
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let credentials = [percent_decoded(user), b":".to_vec(), percent_decoded(password)].concat();
    let field = format!("Basic {}", STANDARD.encode(credentials));
    let mut field = HeaderValue::try_from(field).map_err(|_| RequestError::ProxyAddress)?;
    field.set_sensitive(true);
    Ok(field)
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let pair = (*byte == b'%').then(|| digit(at + 1).zip(digit(at + 2))).flatten();
        let value = pair.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        plain.push(value.unwrap_or(*byte));
        at += if value.is_some() { 3 } else { 1 };
    }
    plain
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.uri.scheme_str().unwrap_or("http");
        write!(f, "{scheme}://{}", self.host_port())
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proxy").field(&self.to_string()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_like_curl() {
        for (text, shown) in [
            ("http://proxy.test:3128", "http://proxy.test:3128"),
            ("http://proxy.test:3128/", "http://proxy.test:3128"),
            ("proxy.test:3128", "http://proxy.test:3128"),
            ("proxy.test", "http://proxy.test:80"),
            ("HTTPS://proxy.test", "https://proxy.test:443"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("127.0.0.1:9", "http://127.0.0.1:9"),
        ] {
            let proxy: Proxy = text.parse().unwrap();
            assert_eq!((proxy.to_string().as_str(), proxy.authorization()), (shown, None));
        }
        for text in
            ["", "http://", "ftp://h:1", "http://h:x", "http://h:0", "h:1/path", "a b", ":1"]
        {
            assert_eq!(text.parse::<Proxy>(), Err(RequestError::ProxyAddress), "{text:?}");
        }
        assert_eq!("socks5h://h:1".parse::<Proxy>(), Err(RequestError::SocksProxy));
    }

    #[test]
    fn credentials_are_decoded_and_never_shown() {
        let proxy: Proxy = "http://me:p%40ss:w@rd@h:1".parse().unwrap();
        let field = proxy.authorization().unwrap();
        assert_eq!(field, &format!("Basic {}", STANDARD.encode("me:p@ss:w@rd")));
        assert!(field.is_sensitive());
        assert_eq!(format!("{proxy:?} {proxy}"), "Proxy(\"http://h:1\") http://h:1");
        let proxy: Proxy = "http://me@h:1".parse().unwrap();
        assert_eq!(proxy.authorization().unwrap(), &format!("Basic {}", STANDARD.encode("me:")));
    }
}
