//! Whole paths by their segments, for paths that are charged less than others.
//!
//! Callers choose their paths, so such a path must match as a whole: an ending could be put behind the
//! path of a call.

/// What paths of providers' APIs begin with. A base URL may have it instead of the path.
const ROOTS: [&str; 8] =
    ["", "/v1", "/openai/v1", "/api/v1", "/openai", "/v1beta", "/v1beta/openai", "/api"];
/// A segment that is an id of the provider.
const ID: &str = "*";
/// No id is longer than this.
const LONGEST_ID: usize = 128;

/// Whether a path is a root with exactly these segments behind it. Segments are compared byte by byte,
/// and an id has no characters that any server gives a meaning to.
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
    (1..=LONGEST_ID).contains(&segment.len()) && segment.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_paths_match() {
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
        assert!(!matches("files/*", &format!("/v1/files/{}", "a".repeat(LONGEST_ID + 1))));
    }
}
