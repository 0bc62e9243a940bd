//! Base URLs: scheme, host and path prefix of a provider's API.

use http::Uri;
use http::uri::Scheme;

use super::error::RequestError;

/// Parses a base URL: `http` or `https` with a host and an optional path. Slashes at the end of the
/// path are removed.
///
/// # Errors
/// Fails if the text is not such a URL, or has credentials or a query in it.
pub fn parse_base_url(text: &str) -> Result<Uri, RequestError> {
    let parts = text.trim().parse::<Uri>().map_err(|_| RequestError::InvalidBaseUrl)?.into_parts();
    let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
        return Err(RequestError::BaseUrlWithoutHost);
    };
    if scheme != Scheme::HTTP && scheme != Scheme::HTTPS || authority.host().is_empty() {
        return Err(RequestError::BaseUrlWithoutHost);
    }
    if authority.as_str().contains('@') {
        return Err(RequestError::BaseUrlWithCredentials);
    }
    let path = match &parts.path_and_query {
        Some(path) if path.query().is_some() => return Err(RequestError::BaseUrlWithQuery),
        Some(path) => path.path().trim_end_matches('/'),
        None => "",
    };
    let path = if path.is_empty() { "/" } else { path };
    Ok(Uri::builder().scheme(scheme).authority(authority).path_and_query(path).build()?)
}

/// Appends a path and query, which begin with a slash, to a base URL.
///
/// ```
/// use tidegate_providers::request::{join_url, parse_base_url};
/// let base = parse_base_url("https://proxy.example/llm/")?;
/// assert_eq!(join_url(&base, "/v1/models")?, "https://proxy.example/llm/v1/models");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Fails if the path or query has characters that a URL cannot have.
pub fn join_url(base: &Uri, rest: &str) -> Result<Uri, http::Error> {
    match path_prefix(base) {
        "" => with_path(base, rest),
        prefix => with_path(base, &[prefix, rest].concat()),
    }
}

/// Returns the path of a base URL without the slash at its end.
pub(super) fn path_prefix(base: &Uri) -> &str {
    base.path().trim_end_matches('/')
}

/// Replaces the path and query of a base URL.
pub(super) fn with_path(base: &Uri, path: &str) -> Result<Uri, http::Error> {
    let mut uri = Uri::builder().path_and_query(path);
    if let Some(scheme) = base.scheme() {
        uri = uri.scheme(scheme.clone());
    }
    if let Some(authority) = base.authority() {
        uri = uri.authority(authority.clone());
    }
    uri.build()
}
