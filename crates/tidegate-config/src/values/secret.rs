//! What may hold a password, and how it is shown without it.

use std::borrow::Cow;
use std::ops::Range;

/// Whether a text may hold a password: an address with a user, wherever it was put.
pub(crate) fn is_secret(text: &str) -> bool {
    credentials(text).is_some()
}

/// Whether a text looks like a key of some service, which people put into the wrong place: it
/// begins as such keys do, or is a long row of letters and digits that nobody has chosen as a name.
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

/// The bytes between the scheme of an address and its host. A password may hold anything that an
/// address can, so the last sign that can end it does.
fn credentials(text: &str) -> Option<Range<usize>> {
    let start = text.find("://")? + "://".len();
    let end = text.rfind('@').filter(|end| *end >= start)?;
    Some(start..end)
}

/// The same with dots in the place of user and password.
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
