//! Paths: from the caller's to the provider's.
//!
//! `/NAME/rest?query` becomes the base URL with `/rest?query` behind it. Whatever could lead out of
//! the base URL is refused.

use std::borrow::Cow;

use http::Uri;
use tidegate_providers::Dialect;
use tidegate_providers::request::join_url;

/// The version of Gemini's API for paths that name none.
const GEMINI_VERSION: &str = "/v1beta";
/// What paths of Gemini begin with that have their version elsewhere, or none.
const GEMINI_ROOTS: [&str; 4] = ["upload", "download", "batch", "discovery"];
/// What paths of OpenAI's API begin with at one provider or another.
const ROOTS: [&str; 3] = ["/openai/v1", "/api/v1", "/v1"];

/// The name of a provider, and the rest of the path and query, which begins with a slash.
pub(crate) fn split(target: &str) -> Option<(&str, &str)> {
    let path = target.strip_prefix('/')?;
    let end = path.find(['/', '?']).unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    (!name.is_empty()).then_some((name, rest))
}

/// Whether a path stays where it says it is, however often somebody on its way decodes it.
pub(crate) fn is_straight(path: &str) -> bool {
    // What is coded more often than this means nothing good.
    const MOST_CODINGS: usize = 4;
    if path.contains('\\') {
        return false;
    }
    let mut path = Cow::Borrowed(path.as_bytes());
    for _ in 0..MOST_CODINGS {
        // Some servers take a backslash for a slash, and some cut a segment at a semicolon.
        let mut segments = path.split(|byte| matches!(byte, b'/' | b'\\'));
        let is_dots = |segment: &[u8]| {
            let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
            matches!(name, b"." | b"..")
        };
        if segments.any(is_dots) {
            return false;
        }
        match decoded(&path) {
            Cow::Borrowed(_) => return true,
            Cow::Owned(next) => path = Cow::Owned(next),
        }
    }
    false
}

/// Text without its percent codings, of which one layer is taken off; as it was if it has none.
pub(crate) fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return text.into();
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut plain = Vec::with_capacity(text.len());
    let (mut rest, mut is_coded) = (text, false);
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
        (rest, is_coded) = (others.get(2..).unwrap_or_default(), true);
    }
    if is_coded { plain.into() } else { text.into() }
}

/// Where a path and query lead at a provider.
pub(crate) fn join(dialect: Dialect, base: &Uri, rest: &str) -> Result<Uri, http::Error> {
    let rest = if rest.is_empty() { "/" } else { rest };
    let first = rest.trim_start_matches('/').split(['/', '?']).next().unwrap_or_default();
    let last = base.path().rsplit('/').next().unwrap_or_default();
    if is_version(first) && first == last {
        // Clients put the version into their base URL, and people into ours.
        let rest = rest.trim_start_matches('/').strip_prefix(first).unwrap_or(rest);
        return join_url(base, if rest.is_empty() { "/" } else { rest });
    }
    let needs_version = dialect == Dialect::Gemini
        && !is_version(first)
        && !is_version(last)
        && !GEMINI_ROOTS.contains(&first);
    if needs_version {
        return join_url(base, &[GEMINI_VERSION, rest].concat());
    }
    join_url(base, rest)
}

/// Where a call to one provider leads at another of its family. Those who speak OpenAI's API have it
/// below roots of their own.
pub(crate) fn carry(dialect: Dialect, base: &Uri, rest: &str) -> Result<Uri, http::Error> {
    if dialect.family() != Dialect::OpenAi {
        return join(dialect, base, rest);
    }
    let bare = ROOTS.iter().find_map(|root| {
        rest.strip_prefix(root).filter(|bare| bare.is_empty() || bare.starts_with(['/', '?']))
    });
    let bare = bare.unwrap_or(rest);
    let last = base.path().rsplit('/').next().unwrap_or_default();
    let root = dialect.root();
    if base.path().ends_with(root) || is_version(last) {
        return join_url(base, if bare.is_empty() { "/" } else { bare });
    }
    join_url(base, &[root, bare].concat())
}

/// `v1`, `v1beta`, `v2`.
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
    fn the_first_segment_is_the_provider() {
        assert_eq!(split("/openai/v1/models?limit=2"), Some(("openai", "/v1/models?limit=2")));
        assert_eq!(split("/openai"), Some(("openai", "")));
        assert_eq!(split("/openai?x"), Some(("openai", "?x")));
        assert_eq!(split("//v1"), None);
        assert_eq!(split("*"), None);
    }

    #[test]
    fn a_call_is_carried_from_root_to_root() {
        for (dialect, base, rest, led) in [
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
                carry(dialect, &parse_base_url(base).unwrap(), rest).unwrap(),
                led,
                "{dialect:?}"
            );
        }
    }

    #[test]
    fn a_path_is_put_behind_the_base_url() {
        let openai = |base, rest| joined(Dialect::OpenAi, base, rest);
        assert_eq!(openai("http://a.test", "/v1/models?a=b&c"), "http://a.test/v1/models?a=b&c");
        assert_eq!(openai("http://a.test/llm/", "/v1/models"), "http://a.test/llm/v1/models");
        assert_eq!(openai("http://a.test/v1/", "/v1/models"), "http://a.test/v1/models");
        assert_eq!(openai("http://a.test/v1", "/models"), "http://a.test/v1/models");
        assert_eq!(openai("http://a.test", ""), "http://a.test/");
    }

    #[test]
    fn gemini_has_a_version_whether_it_is_named_or_not() {
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
    fn no_path_leads_out() {
        for path in ["/v1/../admin", "/v1/%2e%2E/admin", "/..", "/v1/.%2e/x", "/./x", "/a\\b"] {
            assert!(!is_straight(path), "{path}");
        }
        for path in
            ["/v1/..%2f..%2fadmin", "/v1/..;/admin", "/v1/..;x=1/admin", "/%252e%252E/admin"]
        {
            assert!(!is_straight(path), "{path}");
        }
        for path in ["/v1/files/a..b", "/v1/models/org%2Fname", "/v1/.well-known", "/v1/..."] {
            assert!(is_straight(path), "{path}");
        }
    }
}
