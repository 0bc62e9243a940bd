//! Exact matching of paths, for paths that are charged less than others.
//!
//! Callers choose their paths, so such a path must match as a whole: a suffix could be appended to
//! the path of a call.

/// Roots of providers' APIs. The root may be part of the base URL instead of the path.
const ROOTS: [&str; 8] =
    ["", "/v1", "/openai/v1", "/api/v1", "/openai", "/v1beta", "/v1beta/openai", "/api"];
/// Pattern of a segment that is an id.
const ID: &str = "*";
/// Maximum length of an id in bytes.
const MAX_ID: usize = 128;

/// Returns whether a path is a root followed by exactly these segments. Comparison is byte by byte,
/// and ids have no characters that are special to any server.
pub(super) fn matches(shape: &str, path: &str) -> bool {
    let mut below = ROOTS.iter().filter_map(|root| path.strip_prefix(root)?.strip_prefix('/'));
    below.any(|rest| {
        let (mut wanted, mut found) = (shape.split('/'), rest.split('/'));
        loop {
            match (wanted.next(), found.next()) {
                (None, None) => return true,
                (Some(ID), Some(segment)) if is_id(segment) => {}
                (Some(name), Some(segment)) if name != ID && name == segment => {}
                _ => return false,
            }
        }
    })
}

fn is_id(segment: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_ID).contains(&segment.len()) && segment.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_paths_match() {
        for path in ["/v1/files/f-1", "/files/f_1", "/openai/v1/files/1"] {
            assert!(matches("files/*", path), "{path}");
        }
        for path in [
            "/v1/files",
            "/v1/files/",
            "/v1/files/*/x",
            "/v1/files/a.b",
            "/v1/files/a%2Fb",
            "/v1/files/a;b",
            "/v1//files/a",
            "/v1/Files/a",
            "/v2/files/a",
            "/v1/v1/files/a",
            "/v1/chat/completions/files/a",
            "v1/files/a",
            "",
        ] {
            assert!(!matches("files/*", path), "{path}");
        }
        assert!(!matches("files/*", &format!("/v1/files/{}", "a".repeat(MAX_ID + 1))));
    }
}
