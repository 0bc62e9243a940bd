//! Address of the Worker.

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

use crate::error::DurableBuildError;

/// Where the Worker is: scheme, host and, if it is not at the root, a path.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    scheme: Scheme,
    authority: Authority,
    path: String,
}

impl Address {
    /// Parses `durable://host` (HTTPS) or `durable+http://host:port`.
    pub(crate) fn parse(text: &str) -> Result<Self, DurableBuildError> {
        let problem = |problem| DurableBuildError::Address { address: redact(text), problem };
        let (scheme, rest) = if let Some(rest) = text.strip_prefix("durable://") {
            (Scheme::HTTPS, rest)
        } else if let Some(rest) = text.strip_prefix("durable+http://") {
            (Scheme::HTTP, rest)
        } else {
            return Err(problem("it must start with durable:// or durable+http://"));
        };
        if rest.contains('@') {
            return Err(problem("it has a user or password; the secret is set separately"));
        }
        if rest.contains(['?', '#']) {
            return Err(problem("it has a query or fragment"));
        }
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.is_empty() || host.starts_with(':') {
            return Err(problem("it has no host"));
        }
        let authority: Authority = host.parse().map_err(|_| problem("its host is invalid"))?;
        let path = path.trim_end_matches('/').to_owned();
        if !path.is_empty() && path.parse::<PathAndQuery>().is_err() {
            return Err(problem("its path is invalid"));
        }
        Ok(Self { scheme, authority, path })
    }

    /// Whether requests are encrypted.
    pub(crate) fn is_tls(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Returns the URL of a path of the Worker.
    pub(crate) fn url(&self, path: &str) -> Result<Uri, http::Error> {
        let builder = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        builder.path_and_query(format!("{}{path}", self.path)).build()
    }

    /// Returns host and port, for messages.
    pub(crate) fn host(&self) -> &str {
        self.authority.as_str()
    }
}

/// Removes what may be a secret.
fn redact(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_urls() {
        let url = |text, path| Address::parse(text).unwrap().url(path).unwrap().to_string();
        assert_eq!(
            url("durable://limits.example.com", "/healthz"),
            "https://limits.example.com/healthz"
        );
        assert_eq!(url("durable+http://127.0.0.1:8787/", "/a?b=1"), "http://127.0.0.1:8787/a?b=1");
        assert_eq!(url("durable+http://h/limits/", "/a"), "http://h/limits/a");
    }

    #[test]
    fn invalid_addresses_are_refused_without_their_secrets() {
        for (text, problem) in [
            ("redis://h", "must start with durable://"),
            ("durable://", "no host"),
            ("durable://user:hunter2@h", "the secret is set separately"),
            ("durable://h?x=1", "query or fragment"),
            ("durable://h h", "host is invalid"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
