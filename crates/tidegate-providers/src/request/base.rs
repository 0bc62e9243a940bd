//! Base URLs: where a provider is, before any path.

use std::fmt;

use http::Uri;
use http::uri::{Authority, Scheme};

use super::error::RequestError;

/// A base URL in its parts. Its path has no slash at the end.
///
/// ```
/// use tidegate_providers::request::Base;
/// let base: Base = "https://proxy.example/llm/".parse()?;
/// assert_eq!(base.join("/v1/models?limit=2")?, "https://proxy.example/llm/v1/models?limit=2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    scheme: Scheme,
    authority: Authority,
    path: String,
}

impl Base {
    /// The host, and the port if one is given.
    #[must_use]
    pub const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The path, without a slash at its end; empty if there is none.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A path and a query behind it. They begin with a slash.
    ///
    /// # Errors
    /// If they have characters that no address has.
    pub fn join(&self, rest: &str) -> Result<Uri, http::Error> {
        if self.path.is_empty() {
            return self.with_path(rest);
        }
        self.with_path(&[self.path.as_str(), rest].concat())
    }

    /// Another path in place of its own.
    pub(super) fn with_path(&self, path: &str) -> Result<Uri, http::Error> {
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
    }
}

impl std::str::FromStr for Base {
    type Err = RequestError;

    fn from_str(url: &str) -> Result<Self, RequestError> {
        let parts = url.trim().parse::<Uri>().map_err(|_| RequestError::NoUrl)?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(RequestError::NoHost);
        };
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS || authority.host().is_empty() {
            return Err(RequestError::NoHost);
        }
        if authority.as_str().contains('@') {
            return Err(RequestError::Credentials);
        }
        let path = match &parts.path_and_query {
            Some(path) if path.query().is_some() => return Err(RequestError::Query),
            Some(path) => path.path().trim_end_matches('/').to_owned(),
            None => String::new(),
        };
        Ok(Self { scheme, authority, path })
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.path)
    }
}
