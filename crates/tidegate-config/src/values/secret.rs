//! Detects and removes secrets in text.

use std::borrow::Cow;
use std::ops::Range;

/// Returns whether `text` may contain a password, that is, a URL with a user part.
pub(crate) fn is_secret(text: &str) -> bool {
    credentials(text).is_some()
}

/// Returns whether `text` looks like an API key given in the wrong place: it has the prefix of one,
/// or contains a long run of letters and digits.
pub(crate) fn looks_like_key(text: &str) -> bool {
    const PREFIXES: [&str; 9] =
        ["sk-", "sk_", "gsk_", "xai-", "AIza", "hf_", "ghp_", "pk-", "tidegate_"];
    const MIN_LENGTH: usize = 20;
    const MIN_RUN: usize = 32;
    let has_prefix = PREFIXES.iter().any(|prefix| text.starts_with(prefix));
    let run = |run: &str| {
        let digit = run.bytes().any(|byte| byte.is_ascii_digit());
        run.len() >= MIN_RUN && digit && run.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    (has_prefix && text.len() >= MIN_LENGTH)
        || text.split(|c: char| !c.is_ascii_alphanumeric()).any(run)
}

/// Returns the byte range of user and password in a URL. A password may contain `@`, so the range
/// ends at the last one.
fn credentials(text: &str) -> Option<Range<usize>> {
    let start = text.find("://")? + "://".len();
    let end = text.rfind('@').filter(|end| *end >= start)?;
    Some(start..end)
}

/// Replaces user and password of a URL by `...`.
pub(crate) fn without_credentials(text: &str) -> Cow<'_, str> {
    match credentials(text) {
        Some(range) => format!("{}...{}", &text[..range.start], &text[range.end..]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinguished_from_names() {
        for key in [
            "sk-proj-hunter2hunter2hunter2",
            "AIzaSyHunter2Hunter2Hunter2Hunter2",
            "f9c1a30be77b4b62a6f7c1d1e2f3a4b5c6d7e8f9",
        ] {
            assert!(looks_like_key(key), "{key}");
        }
        for name in [
            "tier_2",
            "gpt-4o-mini-2024-07-18",
            "accounts/fireworks/models/llama-v3p1-405b-instruct",
            "claude-sonnet-4-5-20250929",
            "sk-learn",
        ] {
            assert!(!looks_like_key(name), "{name}");
        }
    }
}
