//! URLs of the Worker of the Durable Objects store. This module parses and checks them; it does not
//! connect.

use std::fmt;

use tidegate_http::host::HostPort;

use crate::violation::Rule;

/// The variable with the secret that the Worker asks for.
pub(crate) const SECRET_VARIABLE: &str = "TIDEGATE_SECRET";

/// The URL of a Worker: `durable://host[:port][/path]`, or `durable+http://` without TLS; and its
/// secret.
#[derive(Clone, PartialEq, Eq)]
pub struct DurableUrl {
    text: String,
    secret: String,
}

impl DurableUrl {
    /// Parses a URL. The secret is empty.
    pub(crate) fn parse(text: &str) -> Result<Self, Rule> {
        let rest = text.strip_prefix("durable://").or_else(|| text.strip_prefix("durable+http://"));
        let rest = rest.ok_or(Rule::DurableUrl)?;
        let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
        if HostPort::parse(server).is_err() || !path.bytes().all(is_allowed) {
            return Err(Rule::DurableUrl);
        }
        Ok(Self { text: text.to_owned(), secret: String::new() })
    }

    pub(crate) fn set_secret(&mut self, secret: &str) {
        secret.clone_into(&mut self.secret);
    }

    /// Returns the URL, which has no credentials.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the secret from the environment. Do not log it.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }
}

impl fmt::Display for DurableUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for DurableUrl {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DurableUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_with_a_host_are_accepted() {
        for text in [
            "durable://limits.example.workers.dev",
            "durable://limits.example.com/edge/limits",
            "durable+http://127.0.0.1:8787",
            "durable+http://[::1]:8787/",
        ] {
            assert_eq!(DurableUrl::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "durable:host",
            "durable://",
            "durable:///path",
            "durable://:8787",
            "durable://host:0",
            "durable://secret@host",
            "durable://host?shards=64",
            "durable://host/#secret",
            "durable://host/a b",
            "durable+https://host",
            "DURABLE://host",
        ] {
            assert!(DurableUrl::parse(text).is_err(), "{text}");
        }
    }
}
