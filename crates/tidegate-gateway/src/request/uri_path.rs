//! Maps the caller's path to the provider's URL.
//!
//! `/NAME/rest?query` becomes the base URL followed by `/rest?query`. Paths that could escape the
//! base URL are refused.

use std::borrow::Cow;

use http::Uri;
use tidegate_providers::Dialect;
use tidegate_providers::request::join_url;

/// Version of the Gemini API for paths without one.
const GEMINI_VERSION: &str = "/v1beta";
/// First segments of Gemini paths whose version is elsewhere or absent.
const GEMINI_UNVERSIONED: [&str; 4] = ["upload", "download", "batch", "discovery"];
/// Roots of the OpenAI API at various providers.
const OPENAI_ROOTS: [&str; 3] = ["/openai/v1", "/api/v1", "/v1"];

/// Splits a target into the provider name and the rest, which is empty or starts with `/` or `?`.
pub(crate) fn split_provider(target: &str) -> Option<(&str, &str)> {
    let path = target.strip_prefix('/')?;
    let end = path.find(['/', '?']).unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    (!name.is_empty()).then_some((name, rest))
}

/// Whether a path has no dot segments, however often a server decodes it.
pub(crate) fn is_safe_path(path: &str) -> bool {
    // A path that is encoded more often is treated as an attack.
    const MAX_DECODE_PASSES: usize = 4;
    if path.contains('\\') {
        return false;
    }
    let mut path = Cow::Borrowed(path.as_bytes());
    for _ in 0..MAX_DECODE_PASSES {
        // Some servers treat a backslash as a slash, and some cut a segment at a semicolon.
        let mut segments = path.split(|byte| matches!(byte, b'/' | b'\\'));
        let is_dot_segment = |segment: &[u8]| {
            let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
            matches!(name, b"." | b"..")
        };
        if segments.any(is_dot_segment) {
            return false;
        }
        match percent_decoded(&path) {
            Cow::Borrowed(_) => return true,
            Cow::Owned(next) => path = Cow::Owned(next),
        }
    }
    false
}

/// Removes one layer of percent-encoding; borrowed if there is none.
pub(crate) fn percent_decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return text.into();
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut plain = Vec::with_capacity(text.len());
    let (mut rest, mut has_escape) = (text, false);
    while let [first, others @ ..] = rest {
        let byte = match others {
            [high, low, ..] if *first == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        let Some((high, low)) = byte else {
            plain.push(*first);
            rest = others;
            continue;
        };
        plain.push(high << 4 | low);
        (rest, has_escape) = (others.get(2..).unwrap_or_default(), true);
    }
    if has_escape { plain.into() } else { text.into() }
}

/// Returns the URL of a path and query at a provider.
pub(crate) fn join(dialect: Dialect, base: &Uri, rest: &str) -> Result<Uri, http::Error> {
    let rest = if rest.is_empty() { "/" } else { rest };
    let first = rest.trim_start_matches('/').split(['/', '?']).next().unwrap_or_default();
    let last = base.path().rsplit('/').next().unwrap_or_default();
    if is_version(first) && first == last {
        // Both the client's base URL and the configured base URL may contain the version.
        let rest = rest.trim_start_matches('/').strip_prefix(first).unwrap_or(rest);
        return join_url(base, if rest.is_empty() { "/" } else { rest });
    }
    let needs_version = dialect == Dialect::Gemini
        && !is_version(first)
        && !is_version(last)
        && !GEMINI_UNVERSIONED.contains(&first);
    if needs_version {
        return join_url(base, &[GEMINI_VERSION, rest].concat());
    }
    join_url(base, rest)
}

/// Returns the URL of a call at a fallback of the same family. Providers with the OpenAI API use
/// different roots.
pub(crate) fn join_fallback(dialect: Dialect, base: &Uri, rest: &str) -> Result<Uri, http::Error> {
    if dialect.family() != Dialect::OpenAi {
        return join(dialect, base, rest);
    }
    let suffix = OPENAI_ROOTS.iter().find_map(|root| {
        rest.strip_prefix(root).filter(|suffix| suffix.is_empty() || suffix.starts_with(['/', '?']))
    });
    let suffix = suffix.unwrap_or(rest);
    let last = base.path().rsplit('/').next().unwrap_or_default();
    let root = dialect.root();
    if base.path().ends_with(root) || is_version(last) {
        return join_url(base, if suffix.is_empty() { "/" } else { suffix });
    }
    join_url(base, &[root, suffix].concat())
}

/// Whether a segment is a version, such as `v1`, `v1beta` or `v2`.
fn is_version(segment: &str) -> bool {
    let digits = segment.strip_prefix('v').unwrap_or_default();
    digits.bytes().next().is_some_and(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use tidegate_providers::request::parse_base_url;

    use super::*;

    fn joined(dialect: Dialect, base: &str, rest: &str) -> String {
        join(dialect, &parse_base_url(base).unwrap(), rest).unwrap().to_string()
    }

    #[test]
    fn first_segment_names_the_provider() {
        assert_eq!(
            split_provider("/openai/v1/models?limit=2"),
            Some(("openai", "/v1/models?limit=2"))
        );
        assert_eq!(split_provider("/openai"), Some(("openai", "")));
        assert_eq!(split_provider("/openai?x"), Some(("openai", "?x")));
        assert_eq!(split_provider("//v1"), None);
        assert_eq!(split_provider("*"), None);
    }

    #[test]
    fn fallback_path_uses_the_root_of_its_provider() {
        for (dialect, base, rest, expected) in [
            (Dialect::Groq, "http://a.test", "/v1/chat?x", "http://a.test/openai/v1/chat?x"),
            (Dialect::Groq, "http://a.test/openai/v1", "/v1/chat", "http://a.test/openai/v1/chat"),
            (Dialect::OpenRouter, "http://a.test", "/openai/v1/chat", "http://a.test/api/v1/chat"),
            (Dialect::OpenAi, "http://a.test", "/api/v1/chat", "http://a.test/v1/chat"),
            (Dialect::OpenAi, "http://a.test/v1", "/chat", "http://a.test/v1/chat"),
            (Dialect::DeepSeek, "http://a.test", "/v1/chat", "http://a.test/chat"),
            (
                Dialect::Compatible,
                "http://a.test/llm",
                "/v1x/chat",
                "http://a.test/llm/v1/v1x/chat",
            ),
            (Dialect::Anthropic, "http://a.test", "/v1/messages", "http://a.test/v1/messages"),
        ] {
            assert_eq!(
                join_fallback(dialect, &parse_base_url(base).unwrap(), rest).unwrap(),
                expected,
                "{dialect:?}"
            );
        }
    }

    #[test]
    fn path_is_appended_to_the_base_url() {
        let openai = |base, rest| joined(Dialect::OpenAi, base, rest);
        assert_eq!(openai("http://a.test", "/v1/models?a=b&c"), "http://a.test/v1/models?a=b&c");
        assert_eq!(openai("http://a.test/llm/", "/v1/models"), "http://a.test/llm/v1/models");
        assert_eq!(openai("http://a.test/v1/", "/v1/models"), "http://a.test/v1/models");
        assert_eq!(openai("http://a.test/v1", "/models"), "http://a.test/v1/models");
        assert_eq!(openai("http://a.test", ""), "http://a.test/");
    }

    #[test]
    fn gemini_paths_get_a_default_version() {
        let gemini = |rest| joined(Dialect::Gemini, "http://g.test", rest);
        assert_eq!(
            gemini("/models/m:generateContent"),
            "http://g.test/v1beta/models/m:generateContent"
        );
        assert_eq!(gemini("/v1/models"), "http://g.test/v1/models");
        assert_eq!(gemini("/v1beta/models"), "http://g.test/v1beta/models");
        assert_eq!(gemini("/upload/v1beta/files"), "http://g.test/upload/v1beta/files");
        assert_eq!(
            joined(Dialect::Gemini, "http://g.test/v1", "/models"),
            "http://g.test/v1/models"
        );
    }

    #[test]
    fn paths_cannot_escape_the_base_url() {
        for path in ["/v1/../admin", "/v1/%2e%2E/admin", "/..", "/v1/.%2e/x", "/./x", "/a\\b"] {
            assert!(!is_safe_path(path), "{path}");
        }
        for path in
            ["/v1/..%2f..%2fadmin", "/v1/..;/admin", "/v1/..;x=1/admin", "/%252e%252E/admin"]
        {
            assert!(!is_safe_path(path), "{path}");
        }
        for path in ["/v1/files/a..b", "/v1/models/org%2Fname", "/v1/.well-known", "/v1/..."] {
            assert!(is_safe_path(path), "{path}");
        }
    }
}
