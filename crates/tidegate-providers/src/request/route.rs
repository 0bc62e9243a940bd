//! Routes declared by the user: which paths belong to an endpoint.

use super::error::RequestError;

/// Prefixes of OpenAI-compatible APIs that carry a version.
const ROOTS: [&str; 2] = ["/openai/v1", "/api/v1"];
/// Maximum length of a route in bytes.
const MAX_LENGTH: usize = 256;
/// Ends a route that covers all paths below one.
const BELOW: &str = "/*";

/// Parses a route: a path of a provider's API such as `/v1/chat/completions`, or all paths below
/// one such as `/v1/vision/*`. Returns it in normal form.
///
/// The normal form is in lower case and has neither the root of the API nor a slash at its end, so
/// equal routes have equal texts. `/v1/embeddings` and `/embeddings` are the same route because
/// some clients put the version into their base URL and others leave it to the gateway.
///
/// ```
/// use tidegate_providers::request::{parse_route, route_matches};
/// let route = parse_route("/v1/Vision/*")?;
/// assert_eq!(route, "/vision/*");
/// assert!(route_matches(&route, "/v1/vision/describe"));
/// assert!(route_matches(&route, "/vision/describe/all"));
/// assert!(!route_matches(&route, "/v1/vision"));
/// # Ok::<(), tidegate_providers::request::RequestError>(())
/// ```
///
/// # Errors
/// Fails if the text is not a path.
pub fn parse_route(text: &str) -> Result<String, RequestError> {
    let (path, is_prefix) = split(text);
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#%*;\\".contains(&byte);
    let is_path = path.starts_with('/') || is_prefix && path.is_empty();
    let has_gaps = path.contains("//") || path.split('/').any(|it| matches!(it, "." | ".."));
    if !is_path || has_gaps || text.len() > MAX_LENGTH || !path.bytes().all(is_plain) {
        return Err(RequestError::RoutePath);
    }
    let path = path.strip_suffix('/').unwrap_or(path).to_ascii_lowercase();
    let bare = without_root(&path);
    if bare.is_empty() && !is_prefix {
        return Err(RequestError::RoutePath);
    }
    Ok(if is_prefix { [bare, BELOW].concat() } else { bare.to_owned() })
}

/// Returns whether a path, as [`plain_path`](super::plain_path) returns it, belongs to a route, as
/// [`parse_route`] returns it.
#[must_use]
pub fn route_matches(route: &str, path: &str) -> bool {
    let (bare, is_prefix) = split(route);
    let path = path.strip_suffix('/').unwrap_or(path).to_ascii_lowercase();
    match without_root(&path).strip_prefix(bare) {
        Some(rest) if is_prefix => rest.len() > 1 && rest.starts_with('/'),
        Some(rest) => rest.is_empty(),
        None => false,
    }
}

/// Returns the sort key of a route in normal form. Of the routes that match a path, the one with
/// the greatest key applies: exact paths before prefixes, then longer before shorter.
#[must_use]
pub fn route_specificity(route: &str) -> (bool, usize) {
    let (bare, is_prefix) = split(route);
    (!is_prefix, bare.len())
}

/// Returns the path of a route, and whether the route covers all paths below it.
fn split(route: &str) -> (&str, bool) {
    route.strip_suffix(BELOW).map_or((route, false), |path| (path, true))
}

/// Removes the root of the API: `/openai/v1`, `/api/v1` or a version.
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
    fn root_of_the_api_is_ignored() {
        let route = parse_route("/v1/Chat/Completions/").unwrap();
        for path in ["/v1/chat/completions", "/chat/completions", "/openai/v1/CHAT/completions"] {
            assert!(route_matches(&route, path), "{path}");
            assert_eq!(parse_route(path).unwrap(), route);
        }
        for path in ["/v1/chat", "/v1/chat/completions/x", "/x/v1/chat/completions", "/vision"] {
            assert!(!route_matches(&route, path), "{path}");
        }
        assert_eq!(route, "/chat/completions");
    }

    #[test]
    fn exact_path_is_more_specific_than_a_prefix() {
        let [all, below, one] =
            ["/*", "/vision/*", "/vision/a"].map(|text| parse_route(text).unwrap());
        assert!(route_matches(&all, "/v1/x") && route_matches(&below, "/v1/vision/a"));
        assert!(route_matches(&one, "/vision/a"));
        assert!(route_specificity(&all) < route_specificity(&below));
        assert!(route_specificity(&below) < route_specificity(&one));
    }

    #[test]
    fn texts_that_are_not_paths_are_rejected() {
        for text in
            ["", "/", "v1/chat", "/v1", "/a?b", "/a/*/b", "/a*", "/a//b", "/../a", "/a%20b", "/a b"]
        {
            assert_eq!(parse_route(text), Err(RequestError::RoutePath), "{text}");
        }
    }
}
