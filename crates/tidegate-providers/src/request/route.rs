//! Routes that a user declares: which paths belong to an endpoint.

use std::fmt;
use std::sync::Arc;

use super::error::RequestError;

/// What paths of OpenAI's API begin with at one provider or another.
const ROOTS: [&str; 2] = ["/openai/v1", "/api/v1"];
/// The longest route.
const LONGEST: usize = 256;

/// A path of a provider's API, or all paths below one: `/v1/chat/completions`, `/v1/vision/*`.
///
/// The root of the API does not count: `/v1/embeddings` and `/embeddings` are the same route, since
/// clients put the version into their base URL or leave it to the gateway. Neither does case, nor a
/// slash at the end.
///
/// ```
/// use tidegate_providers::request::RoutePath;
/// let route = RoutePath::parse("/v1/vision/*")?;
/// assert!(route.matches("/v1/vision/describe") && route.matches("/vision/describe/all"));
/// assert!(!route.matches("/v1/vision"));
/// # Ok::<(), tidegate_providers::request::RequestError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoutePath {
    /// In lower case, without its root.
    bare: Arc<str>,
    is_prefix: bool,
}

impl RoutePath {
    /// Reads a route.
    ///
    /// # Errors
    /// When it is no path.
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let (path, is_prefix) = text.strip_suffix("/*").map_or((text, false), |path| (path, true));
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#%*;\\".contains(&byte);
        let is_path = path.starts_with('/') || is_prefix && path.is_empty();
        let has_gaps = path.contains("//") || path.split('/').any(|it| matches!(it, "." | ".."));
        if !is_path || has_gaps || text.len() > LONGEST || !path.bytes().all(is_plain) {
            return Err(RequestError::RoutePath);
        }
        let path = path.strip_suffix('/').unwrap_or(path).to_ascii_lowercase();
        let bare = without_root(&path);
        if bare.is_empty() && !is_prefix {
            return Err(RequestError::RoutePath);
        }
        Ok(Self { bare: bare.into(), is_prefix })
    }

    /// Whether a path, as [`plain_path`](super::plain_path) makes it, belongs to the route.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let path = path.strip_suffix('/').unwrap_or(path).to_ascii_lowercase();
        let path = without_root(&path);
        match path.strip_prefix(&*self.bare) {
            Some(rest) if self.is_prefix => rest.len() > 1 && rest.starts_with('/'),
            Some(rest) => rest.is_empty(),
            None => false,
        }
    }

    /// The order in which routes are asked, the first one last: a path comes before all that is below
    /// one, and a longer one before a shorter one.
    #[must_use]
    pub fn specificity(&self) -> (bool, usize) {
        (!self.is_prefix, self.bare.len())
    }
}

impl fmt::Display for RoutePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bare)?;
        if self.is_prefix { f.write_str("/*") } else { Ok(()) }
    }
}

/// A path without the root of the API: `/openai/v1`, `/api/v1` or a version.
fn without_root(path: &str) -> &str {
    let is_end = |rest: &&str| rest.is_empty() || rest.starts_with('/');
    if let Some(rest) = ROOTS.iter().find_map(|root| path.strip_prefix(root).filter(is_end)) {
        return rest;
    }
    let first =
        path.strip_prefix("/v").filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    first.map_or(path, |rest| rest.find('/').map_or("", |end| &rest[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_of_an_api_does_not_count() {
        let route = RoutePath::parse("/v1/Chat/Completions/").unwrap();
        for path in ["/v1/chat/completions", "/chat/completions", "/openai/v1/CHAT/completions"] {
            assert!(route.matches(path), "{path}");
            assert_eq!(RoutePath::parse(path).unwrap(), route);
        }
        for path in ["/v1/chat", "/v1/chat/completions/x", "/x/v1/chat/completions", "/vision"] {
            assert!(!route.matches(path), "{path}");
        }
        assert_eq!(route.to_string(), "/chat/completions");
    }

    #[test]
    fn a_path_comes_before_all_below_one() {
        let [all, below, one] =
            ["/*", "/vision/*", "/vision/a"].map(|text| RoutePath::parse(text).unwrap());
        assert!(all.matches("/v1/x") && below.matches("/v1/vision/a") && one.matches("/vision/a"));
        assert!(all.specificity() < below.specificity());
        assert!(below.specificity() < one.specificity());
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in
            ["", "/", "v1/chat", "/v1", "/a?b", "/a/*/b", "/a*", "/a//b", "/../a", "/a%20b", "/a b"]
        {
            assert_eq!(RoutePath::parse(text), Err(RequestError::RoutePath), "{text}");
        }
    }
}
