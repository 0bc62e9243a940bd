//! Keys by route: the template of a path, never the path itself.
//!
//! Callers choose paths freely, and a key per path would be a full bucket per path. All paths that
//! match no template share one key.

use super::{KeySource, KeyText, Kind, RequestKey};
use crate::head::Head;

/// Key of all paths that match no template.
const OTHER: &str = "other";

/// Error of an invalid path template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template does not begin with a slash.
    #[error("path template {0:?} must begin with /, as in /users/{{id}}")]
    NoSlash(String),
    /// A brace is misplaced: a parameter is a whole segment, and a wildcard the last one.
    #[error(
        "path template {0:?} has a misplaced brace: a parameter is a whole segment, as in \
         /users/{{id}}, and {{*rest}} is the last segment"
    )]
    Parameter(String),
}

/// Key source: the template that a path matches.
#[derive(Clone, Debug)]
pub(super) struct Path(Vec<Template>);

#[derive(Clone, Debug)]
struct Template {
    text: String,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    /// One non-empty segment.
    Parameter,
    /// All remaining segments; at least one byte.
    Wildcard,
}

/// Charges by the first of these templates that the path matches, such as `/users/{id}` or
/// `/files/{*rest}`. Paths that match none are charged to `other`.
///
/// ```
/// use http::Request;
/// use tidegate_http::Head;
/// use tidegate_http::identity::ClientAddress;
/// use tidegate_http::key::{self, KeyText};
///
/// let routes = key::path(["/users/me", "/users/{id}"])?;
/// let clients = ClientAddress::peer();
/// let key = |path: &str| {
///     let request = Request::get(path).body(()).unwrap();
///     KeyText::of(&routes, &Head::of(&request, &clients)).unwrap().as_str().to_owned()
/// };
/// assert_eq!(key("/users/42?page=2"), "/users/{id}");
/// assert_eq!(key("/users/me"), "/users/me");
/// assert_eq!(key("/.env"), "other");
/// # Ok::<(), key::TemplateError>(())
/// ```
///
/// # Errors
/// Returns an error if a template does not begin with a slash, or has a parameter that is not a
/// whole segment.
pub fn path<T: Into<String>>(
    templates: impl IntoIterator<Item = T>,
) -> Result<RequestKey, TemplateError> {
    let templates = templates.into_iter().map(|text| Template::new(text.into()));
    Ok(RequestKey(Kind::Path(Path(templates.collect::<Result<_, _>>()?))))
}

impl Template {
    fn new(text: String) -> Result<Self, TemplateError> {
        let Some(path) = text.strip_prefix('/') else { return Err(TemplateError::NoSlash(text)) };
        let mut segments = Vec::new();
        for segment in path.split('/') {
            let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            let plain = |name: &str| !name.is_empty() && !name.contains(['{', '}', '*']);
            let segment = match name.map(|name| name.strip_prefix('*').ok_or(name)) {
                Some(Ok(rest)) if plain(rest) => Segment::Wildcard,
                Some(Err(one)) if plain(one) => Segment::Parameter,
                None if !segment.contains(['{', '}']) => Segment::Literal(segment.to_owned()),
                _ => return Err(TemplateError::Parameter(text)),
            };
            if segments.last() == Some(&Segment::Wildcard) {
                return Err(TemplateError::Parameter(text));
            }
            segments.push(segment);
        }
        Ok(Self { segments, text })
    }

    fn matches(&self, path: &str) -> bool {
        let Some(mut rest) = path.strip_prefix('/') else { return false };
        let last = self.segments.len() - 1;
        for (index, segment) in self.segments.iter().enumerate() {
            if *segment == Segment::Wildcard {
                return !rest.is_empty();
            }
            let (current, after) = match rest.split_once('/') {
                Some((current, after)) => (current, Some(after)),
                None => (rest, None),
            };
            let fits = match segment {
                Segment::Literal(text) => text == current,
                Segment::Parameter | Segment::Wildcard => !current.is_empty(),
            };
            match (fits, after) {
                (true, Some(after)) if index < last => rest = after,
                (true, None) if index == last => return true,
                _ => return false,
            }
        }
        false
    }
}

impl KeySource for Path {
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
        let path = head.uri().path();
        let template = self.0.iter().find(|template| template.matches(path));
        key.push_str(template.map_or(OTHER, |template| &template.text));
        Some(())
    }
}

/// Key source: the route that axum matched.
#[cfg(feature = "axum")]
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchedRoute;

/// Charges by the route that axum matched, such as `/users/{id}`. Requests without a matched route
/// are charged to `other`.
///
/// Only layers added with `Router::layer` or `route_layer` see the route, not those around the
/// whole router.
#[cfg(feature = "axum")]
pub const fn matched_path() -> RequestKey {
    RequestKey(Kind::MatchedRoute(MatchedRoute))
}

#[cfg(feature = "axum")]
impl KeySource for MatchedRoute {
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
        let route = head.extensions().get::<axum::extract::MatchedPath>();
        key.push_str(route.map_or(OTHER, axum::extract::MatchedPath::as_str));
        Some(())
    }
}
