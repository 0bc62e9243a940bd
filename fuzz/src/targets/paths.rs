//! Request targets: normalized paths, and configured routes.

use tidegate_providers::Dialect;
use tidegate_providers::request::{
    PathPurpose, join_url, parse_base_url, parse_route, plain_path, route_matches, with_model,
};

use crate::input;

/// A path in the first line, a route or a base URL in the second.
pub(super) fn paths(bytes: &[u8]) {
    let Some((path, rest)) = input::text_line(bytes) else { return };
    let Some((other, _)) = input::text_line(rest) else { return };
    let plain = plain_path(path);
    if path.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'/')
        && path.starts_with('/')
        && !path.contains("//")
    {
        assert_eq!(plain, path.trim_end_matches('/'), "a normalized path was changed");
    }
    for empty in ["//", ";", "\\"] {
        assert!(!plain.contains(empty), "{plain:?} has {empty:?} in it");
    }
    assert!(plain.is_empty() || !plain.ends_with('/'), "{plain:?} ends with a slash");
    for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Gemini, Dialect::Ollama] {
        if let Some(purpose) = PathPurpose::lookup(dialect, &plain) {
            let _ = (purpose.endpoint(), purpose.has_output(), purpose.is_readable());
        }
        let _ = PathPurpose::lookup(dialect, path);
    }
    let _ = with_model(path, "gpt-4o", "other");
    let _ = with_model(path, other, "other");
    if let Ok(route) = parse_route(other) {
        let _ = route_matches(&route, &plain);
        assert!(
            other.ends_with("/*") || route_matches(&route, other),
            "{other:?} is not on its own route"
        );
    }
    if let Ok(base) = parse_base_url(other)
        && let Ok(joined) = join_url(&base, path)
    {
        assert_eq!(joined.authority(), base.authority(), "a path leads to another host");
    }
}
