//! Server addresses: what is wrong with one, and how to show it without its password.

use std::fmt;

use redis::{ConnectionInfo, IntoConnectionInfo as _};

use crate::error::OpenError;

/// An address as given. Neither `Debug` nor `Display` shows its password.
#[derive(Clone)]
pub(crate) struct Address(String);

/// The parts of an address, as far as they can be separated.
struct Parts<'a> {
    /// Including `://`; empty if there is none.
    scheme: &'a str,
    /// User and password.
    credentials: Option<&'a str>,
    host: &'a str,
    port: Option<&'a str>,
    /// Without the leading slash.
    path: Option<&'a str>,
    has_query: bool,
}

impl Address {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns whether connections are encrypted.
    pub(crate) fn uses_tls(&self) -> bool {
        matches!(self.parts().scheme, "rediss://" | "valkeys://")
    }

    pub(crate) fn parse(&self) -> Result<ConnectionInfo, OpenError> {
        // The error text of the client may contain the password.
        self.0.as_str().into_connection_info().map_err(|_| self.invalid())
    }

    /// Returns the error for an address that the client does not accept.
    pub(crate) fn invalid(&self) -> OpenError {
        OpenError::Address { address: self.to_string(), problem: self.parts().problem() }
    }

    fn parts(&self) -> Parts<'_> {
        let text = self.0.as_str();
        let is_scheme = |scheme: &str| {
            !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+')
        };
        let end = text.find("://").filter(|&end| is_scheme(&text[..end])).map_or(0, |end| end + 3);
        let (scheme, rest) = text.split_at(end);
        // A password may contain any character, so the last `@` ends it.
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, rest),
        };
        let (rest, has_query) = match rest.find(['?', '#']) {
            Some(query) => (&rest[..query], true),
            None => (rest, false),
        };
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, Some(path)),
            None => (rest, None),
        };
        // Colons inside brackets belong to the IPv6 address.
        let bracket = authority.rfind(']').map_or(0, |bracket| bracket + 1);
        let (host, port) = match authority[bracket..].find(':') {
            Some(colon) => (&authority[..bracket + colon], Some(&authority[bracket + colon + 1..])),
            None => (authority, None),
        };
        Parts { scheme, credentials, host, port, path, has_query }
    }
}

impl Parts<'_> {
    fn is_socket(&self) -> bool {
        matches!(self.scheme, "unix://" | "redis+unix://" | "valkey+unix://")
    }

    fn has_port(&self) -> bool {
        self.port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
    }

    fn problem(&self) -> &'static str {
        if self.is_socket() {
            return "it must contain the path of a socket; the database, if any, must be a number";
        }
        if !matches!(self.scheme, "redis://" | "rediss://" | "valkey://" | "valkeys://") {
            return "it must begin with redis://, or rediss:// for TLS";
        }
        if self.host.is_empty() {
            return "the host is missing";
        }
        if matches!(self.host, "0.0.0.0" | "[::]") {
            return "the host is an address to listen on, not one to connect to";
        }
        if !self.has_port() {
            return "the port must be a number from 1 to 65535";
        }
        let database = self.path.unwrap_or_default().trim_matches('/');
        if !database.is_empty() && database.parse::<i64>().is_err() {
            return "the database must be a number";
        }
        "it cannot be parsed; percent-encode special characters of the password, such as %40 for @"
    }
}

impl fmt::Display for Address {
    /// Writes the address with `***` for the password, and for anything that may be a misplaced
    /// one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts();
        f.write_str(parts.scheme)?;
        if let Some(credentials) = parts.credentials {
            // Without a colon, it may be just a password.
            let user = credentials.split_once(':').map(|(user, _)| user);
            if let Some(user) = user {
                write!(f, "{user}:")?;
            }
            f.write_str("***@")?;
        }
        f.write_str(parts.host)?;
        if !parts.has_port() {
            // A password without a following `@` is in the position of the port.
            return f.write_str(":***");
        }
        if let Some(port) = parts.port {
            write!(f, ":{port}")?;
        }
        if let Some(path) = parts.path {
            write!(f, "/{path}")?;
        }
        // Passwords for sockets are in the query.
        f.write_str(if parts.has_query { "?***" } else { "" })
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({:?})", self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked_at_any_position() {
        for (address, shown) in [
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("rediss://gate:hunter2@[::1]:1/2", "rediss://gate:***@[::1]:1/2"),
            ("redis://:hunter2@host", "redis://:***@host"),
            ("redis://hunter2@host", "redis://***@host"),
            ("redis://gate:hunter2@x@host", "redis://gate:***@host"),
            ("redis://gate:hunter2/?#x@host", "redis://gate:***@host"),
            ("gate:hunter2@host", "gate:***@host"),
            ("redis:gate:hun://ter2@host", "redis:***@host"),
            ("redis://gate:hunter2", "redis://gate:***"),
            ("redis://:hunter2/0", "redis://:***"),
            ("redis://gate:123456", "redis://gate:***"),
            ("unix:///run/redis.sock?pass=hunter2", "unix:///run/redis.sock?***"),
            ("redis://host#hunter2", "redis://host?***"),
            ("", ""),
        ] {
            let address = Address::new(address);
            assert_eq!(address.to_string(), shown);
            assert!(!format!("{address:?}").contains("ter2"), "{address:?}");
        }
    }

    #[test]
    fn errors_name_the_problem() {
        for (address, expected) in [
            ("", "must begin with redis://"),
            ("localhost:6379", "must begin with redis://"),
            ("http://host", "must begin with redis://"),
            ("redis://", "the host is missing"),
            ("redis://:hunter2@:6379", "the host is missing"),
            ("redis://0.0.0.0:6379", "an address to listen on"),
            ("redis://host:70000", "the port must be"),
            ("redis://host:port", "the port must be"),
            ("redis://host:6379/zero", "the database must be"),
            ("redis://:%FF@host", "cannot be parsed"),
            ("unix://?db=x", "path of a socket"),
        ] {
            let Err(error) = Address::new(address).parse() else { panic!("{address} is usable") };
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn tls_follows_from_the_scheme() {
        assert!(Address::new("rediss://host").uses_tls());
        assert!(Address::new("valkeys://host").uses_tls());
        assert!(!Address::new("redis://host").uses_tls());
    }
}
