//! Redis URLs. This module parses and checks them; it does not connect.
//!
//! A URL may contain a user and a password. `Debug`, `Display` and errors never show them.

use std::fmt;
use std::str::FromStr;

use tidegate_http::host::{HostPort, HostPortError};

use crate::values::url_parts::{number, percent_decode};

/// Port used if the URL has none.
const DEFAULT_PORT: u16 = 6379;

/// An invalid Redis URL. Its text never repeats the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisUrlError {
    /// Not a Redis URL.
    #[error(
        "must be redis://[user:password@]host[:port][/database], or rediss:// for TLS; \
         percent-encode special characters of a password, such as %40 for @"
    )]
    Malformed,
    /// A user without a password, or nothing before the `@`.
    #[error(
        "must have a password after the user, as in redis://user:password@host, or neither; \
         for a password without a user write redis://:password@host"
    )]
    NoPassword,
    /// User or password is not UTF-8 after percent-decoding.
    #[error("must have a user and a password that are UTF-8 after percent-decoding")]
    NotUtf8,
    /// An invalid port.
    #[error("must have a port from 1 to 65535, or none for the default, {DEFAULT_PORT}")]
    Port,
    /// A path that is not a database number.
    #[error("must end with a database number, as in redis://host:6379/0, or have no path")]
    Database,
    /// A query or a fragment.
    #[error("must not have a query or a fragment")]
    Extra,
}

/// The URL of a Redis or Valkey server.
///
/// ```
/// use tidegate_config::RedisUrl;
/// let url: RedisUrl = "rediss://gate:secret@cache.internal/2".parse()?;
/// assert!(url.tls());
/// assert_eq!((url.host(), url.port(), url.database()), ("cache.internal", 6379, 2));
/// assert_eq!(url.to_string(), "rediss://cache.internal:6379/2");
/// assert!(!format!("{url:?}").contains("secret"));
/// # Ok::<(), tidegate_config::RedisUrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// The URL as given, with credentials.
    text: String,
    tls: bool,
    host: String,
    port: u16,
    database: u32,
}

impl RedisUrl {
    /// Returns the URL as given, including credentials, for the client. Do not log it.
    #[must_use]
    pub fn with_credentials(&self) -> &str {
        &self.text
    }

    /// Returns whether the connection is encrypted (`rediss://`).
    #[must_use]
    pub const fn tls(&self) -> bool {
        self.tls
    }

    /// Returns the host: a name or an IP address, IPv6 in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, 6379 by default.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the database number, 0 by default.
    #[must_use]
    pub const fn database(&self) -> u32 {
        self.database
    }
}

impl FromStr for RedisUrl {
    type Err = RedisUrlError;

    fn from_str(text: &str) -> Result<Self, RedisUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(RedisUrlError::Malformed)?;
        let tls = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err(RedisUrlError::Malformed),
        };
        if rest.contains(['?', '#']) {
            return Err(RedisUrlError::Extra);
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, server) = match authority.rsplit_once('@') {
            Some((credentials, server)) => (Some(credentials), server),
            None => (None, authority),
        };
        if let Some(credentials) = credentials {
            check_credentials(credentials)?;
        }
        let server = HostPort::parse(server).map_err(|error| match error {
            HostPortError::Port => RedisUrlError::Port,
            _ => RedisUrlError::Malformed,
        })?;
        let database = match path {
            "" => 0,
            // The client uses a signed number.
            path => number::<i32>(path).ok_or(RedisUrlError::Database)?.unsigned_abs(),
        };
        let (host, port) = (server.host().to_owned(), server.port().unwrap_or(DEFAULT_PORT));
        Ok(Self { text: text.to_owned(), tls, host, port, database })
    }
}

/// Checks an optional user and a password: printable ASCII, with reserved characters escaped.
fn check_credentials(text: &str) -> Result<(), RedisUrlError> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@') {
        return Err(RedisUrlError::Malformed);
    }
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    for part in [user, password] {
        let bytes = percent_decode(part).ok_or(RedisUrlError::Malformed)?;
        std::str::from_utf8(&bytes).map_err(|_| RedisUrlError::NotUtf8)?;
    }
    if password.is_empty() { Err(RedisUrlError::NoPassword) } else { Ok(()) }
}

impl fmt::Display for RedisUrl {
    /// Omits user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        write!(f, "{scheme}://{}:{}/{}", self.host, self.port, self.database)
    }
}

impl fmt::Debug for RedisUrl {
    /// Omits user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, bool), RedisUrlError> {
        let url: RedisUrl = text.parse()?;
        assert_eq!(url.with_credentials(), text);
        assert!(!format!("{url:?} {url}").contains("secret"));
        Ok((format!("{} {} {}", url.host(), url.port(), url.database()), url.tls()))
    }

    #[test]
    fn valid_urls_hide_credentials() {
        for (text, shown) in [
            ("redis://host", "host 6379 0"),
            ("redis://host/", "host 6379 0"),
            ("redis://cache_1.internal:7000/15", "cache_1.internal 7000 15"),
            ("redis://127.0.0.1:1", "127.0.0.1 1 0"),
            ("redis://[::1]", "[::1] 6379 0"),
            ("redis://[fd00::7]:65535/1", "[fd00::7] 65535 1"),
            ("redis://:secret@host", "host 6379 0"),
            ("redis://user:secret%40%2F@host:7", "host 7 0"),
            ("redis://:p%C3%A4ss@host/2147483647", "host 6379 2147483647"),
            ("redis://user:secret!$&'()*+,;=:x@[::1]:7/3", "[::1] 7 3"),
        ] {
            assert_eq!(read(text), Ok((shown.to_owned(), false)), "{text}");
            let over_tls = text.replacen("redis", "rediss", 1);
            assert_eq!(read(&over_tls), Ok((shown.to_owned(), true)), "{text}");
        }
    }

    #[test]
    fn invalid_urls_are_rejected_without_being_repeated() {
        use RedisUrlError::{Database, Extra, Malformed, NoPassword, NotUtf8, Port};
        for (text, error) in [
            ("redis:host", Malformed),
            ("redis://", Malformed),
            ("redis://:6379", Malformed),
            ("redis://user:secret@", Malformed),
            ("redis://user:secret@word@host", Malformed),
            ("redis://user:sec ret@host", Malformed),
            ("redis://user:secret%4@host", Malformed),
            ("redis://user:secret%zz@host", Malformed),
            ("redis://user:secret%+f@host", Malformed),
            ("redis://user:secret%FF@host", NotUtf8),
            ("redis://%C3:secret@host", NotUtf8),
            ("redis://secret@host", NoPassword),
            ("redis://user:@host", NoPassword),
            ("redis://:@host", NoPassword),
            ("redis://@host", NoPassword),
            ("redis://us/er:secret@host", Database),
            ("redis://host name", Malformed),
            ("redis://::1", Malformed),
            ("redis://[::1", Malformed),
            ("redis://[secret]", Malformed),
            ("redis://a,b,c", Malformed),
            ("REDIS://host", Malformed),
            ("redis+cluster://host", Malformed),
            ("redis://host:", Port),
            ("redis://host:0", Port),
            ("redis://host:+1", Port),
            ("redis://host:65536", Port),
            ("redis://host:secret", Port),
            ("redis://host/x", Database),
            ("redis://host/-1", Database),
            ("redis://host/2147483648", Database),
            ("redis://host/0/1", Database),
            ("redis://host/0?protocol=resp3", Extra),
            ("rediss://host/#insecure", Extra),
            ("redis://user:sec#ret@host", Extra),
        ] {
            assert_eq!(read(text), Err(error), "{text}");
            assert!(!error.to_string().contains("secret"));
        }
    }
}
