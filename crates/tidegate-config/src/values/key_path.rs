//! Key paths as text: `limits.client.rate`, or `limits."a.b".rate` if a name contains a dot.
//!
//! Paths round-trip through [`join`] and [`parse`]; anything else is rejected.

/// Splits a path into names; `None` if it is malformed.
pub(crate) fn parse(path: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = path;
    loop {
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find('.').unwrap_or(rest.len())),
        };
        if name.is_empty() || name.contains(['"', '\\']) {
            return None;
        }
        names.push(name.to_owned());
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None if after.is_empty() => return Some(names),
            None => return None,
        }
    }
}

/// Joins names to a path.
pub(crate) fn join(names: &[impl AsRef<str>]) -> String {
    let mut path = String::new();
    for name in names.iter().map(AsRef::as_ref) {
        if !path.is_empty() {
            path.push('.');
        }
        let quoted = name.contains(['.', '"']) || name.is_empty();
        if quoted {
            path.push('"');
        }
        path.push_str(name);
        if quoted {
            path.push('"');
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_round_trip() {
        for (text, expected) in [
            ("state_dir", &["state_dir"][..]),
            ("limits.client.rate", &["limits", "client", "rate"]),
            ("limits.\"a.b\".rate", &["limits", "a.b", "rate"]),
            ("providers.my-vllm.models", &["providers", "my-vllm", "models"]),
        ] {
            assert_eq!(parse(text).unwrap(), expected);
            assert_eq!(join(expected), text);
        }
        for text in ["", ".", "a.", ".a", "a..b", "\"a", "a\"b", "\"a\"b", "\"\".a", "a\\b"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
