//! Meaning of the paths of providers' APIs.
//!
//! Each family has a table of path suffixes, because providers put their APIs below different
//! roots. A path in no table is a call of the endpoint `other`, since new APIs use models too. Only
//! a short list of requests is free ([`is_free`](super::is_free)).
//!
//! Servers are lenient about the spelling of paths. If callers choose the path, normalize it with
//! [`plain_path`] first; otherwise percent-encoding bypasses limits.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::path_shape;
use crate::dialect::{Dialect, Family};
use crate::provider::Endpoint;

/// What a path of a provider's API is for.
///
/// ```
/// use tidegate_providers::Dialect;
/// use tidegate_providers::request::PathPurpose;
/// let path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent";
/// let purpose = PathPurpose::lookup(Dialect::Gemini, path).unwrap();
/// assert_eq!(purpose.endpoint().as_str(), "chat");
/// assert_eq!(purpose.model, Some("gemini-2.5-flash"));
/// assert!(PathPurpose::lookup(Dialect::Gemini, "/v1beta/models").is_none());
/// assert_eq!(PathPurpose::other(Dialect::Gemini, "/v1beta/new").endpoint().as_str(), "other");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathPurpose<'a> {
    kind: Kind,
    /// Dialect of requests and responses on this path. Some providers offer several APIs.
    pub dialect: Dialect,
    /// The model, if the path names it.
    pub model: Option<&'a str>,
    /// Whether the response is streamed, where the path determines it.
    pub(crate) is_streamed: Option<bool>,
}

/// How many times a path may be percent-decoded on its way to the provider.
const MAX_DECODINGS: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Chat,
    Embeddings,
    TokenCounting,
    Images,
    Audio,
    Moderations,
    Rerank,
    Ocr,
    Videos,
    Batches,
    /// File uploads, which no model reads yet.
    Files,
    /// A path that is in no table.
    Other,
    /// A path declared by the user.
    Declared,
}

// In the order of `Kind`.
/// Names of the well-known endpoints.
pub const ENDPOINT_NAMES: [&str; 12] = [
    "chat",
    "embeddings",
    "token_counting",
    "images",
    "audio",
    "moderations",
    "rerank",
    "ocr",
    "videos",
    "batches",
    "files",
    "other",
];

static ENDPOINTS: LazyLock<[Endpoint; 12]> = LazyLock::new(|| ENDPOINT_NAMES.map(Endpoint::new));

const OPENAI: &[(&str, Kind)] = &[
    // `/chat/completions` too, and Mistral's `/fim/completions`.
    ("/completions", Kind::Chat),
    ("/responses", Kind::Chat),
    ("/responses/compact", Kind::Chat),
    ("/responses/input_tokens", Kind::TokenCounting),
    ("/embeddings", Kind::Embeddings),
    ("/images/generations", Kind::Images),
    ("/images/edits", Kind::Images),
    ("/images/variations", Kind::Images),
    ("/audio/speech", Kind::Audio),
    ("/audio/transcriptions", Kind::Audio),
    ("/audio/translations", Kind::Audio),
    ("/moderations", Kind::Moderations),
    ("/rerank", Kind::Rerank),
    ("/ocr", Kind::Ocr),
    ("/videos", Kind::Videos),
];

const ANTHROPIC: &[(&str, Kind)] = &[
    ("/v1/messages", Kind::Chat),
    ("/v1/messages/count_tokens", Kind::TokenCounting),
    ("/v1/messages/batches", Kind::Batches),
    ("/v1/complete", Kind::Chat),
];

const GEMINI: &[(&str, Kind)] = &[
    ("generateContent", Kind::Chat),
    ("streamGenerateContent", Kind::Chat),
    ("embedContent", Kind::Embeddings),
    ("batchEmbedContents", Kind::Embeddings),
    ("countTokens", Kind::TokenCounting),
    ("predict", Kind::Images),
    ("predictLongRunning", Kind::Videos),
    ("batchGenerateContent", Kind::Batches),
];

const OLLAMA: &[(&str, Kind)] = &[
    ("/api/chat", Kind::Chat),
    ("/api/generate", Kind::Chat),
    ("/api/embed", Kind::Embeddings),
    ("/api/embeddings", Kind::Embeddings),
];

/// Paths that use no tokens per minute: batches have their own limits, and files are read later.
/// They are charged one request only, so the whole path must match.
const WITHOUT_TOKENS: &[(&str, Kind)] = &[
    ("batches", Kind::Batches),
    ("files", Kind::Files),
    ("upload/v1beta/files", Kind::Files),
    ("uploads", Kind::Files),
    ("uploads/*/parts", Kind::Files),
    ("uploads/*/complete", Kind::Files),
    ("containers/*/files", Kind::Files),
];

impl<'a> PathPurpose<'a> {
    /// Looks up a path; `None` if it is in no table.
    #[must_use]
    pub fn lookup(dialect: Dialect, path: &'a str) -> Option<Self> {
        let path = path.strip_suffix('/').unwrap_or(path);
        let native = match Family::of(dialect) {
            Family::Gemini => gemini(dialect, path),
            Family::Anthropic => by_suffix(ANTHROPIC, dialect, path),
            Family::Ollama => by_suffix(OLLAMA, dialect, path),
            Family::OpenAi => by_suffix(OPENAI, dialect, path),
        };
        // Most providers offer OpenAI's API as well, and some Anthropic's.
        let native = native.or_else(|| by_suffix(OPENAI, Dialect::Compatible, path));
        let native = native.or_else(|| by_suffix(ANTHROPIC, Dialect::Anthropic, path));
        let mut purpose = native.or_else(|| without_tokens(dialect, path))?;
        if dialect == Dialect::Azure {
            purpose.model = deployment(path);
        }
        Some(purpose)
    }

    /// Creates the purpose of a path in no table. Its dialect is that of the provider, and the
    /// model is taken from the path as in known paths of that provider.
    #[must_use]
    pub fn other(dialect: Dialect, path: &'a str) -> Self {
        let model = match dialect {
            Dialect::Gemini => path.rsplit_once('/').and_then(|(_, last)| last.split_once(':')),
            Dialect::Azure => deployment(path).map(|model| (model, "")),
            _ => None,
        };
        let model = model.map(|(model, _)| model).filter(|model| !model.is_empty());
        Self { kind: Kind::Other, dialect, model, is_streamed: None }
    }

    /// Creates the purpose of a path in no table that the user declared to use a model.
    #[must_use]
    pub const fn declared(dialect: Dialect) -> Self {
        Self { kind: Kind::Declared, dialect, model: None, is_streamed: None }
    }

    /// Returns the purpose without its model, which is the only borrowed part.
    #[must_use]
    pub const fn without_model(&self) -> PathPurpose<'static> {
        PathPurpose {
            kind: self.kind,
            dialect: self.dialect,
            model: None,
            is_streamed: self.is_streamed,
        }
    }

    /// Returns the endpoint whose limits apply, unless a route of the user selects another.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        let index = self.kind as usize;
        ENDPOINTS.get(index).cloned().unwrap_or_default()
    }

    /// Returns whether the response uses output tokens.
    #[must_use]
    pub const fn has_output(&self) -> bool {
        matches!(
            self.kind,
            Kind::Chat
                | Kind::Images
                | Kind::Audio
                | Kind::Videos
                | Kind::Ocr
                | Kind::Other
                | Kind::Declared
        )
    }

    /// Returns whether the input is in the body and counts against the limits of this endpoint.
    /// Batches and files have their own limits and may be arbitrarily long.
    #[must_use]
    pub const fn is_readable(&self) -> bool {
        !matches!(self.kind, Kind::Batches | Kind::Files)
    }

    /// Returns whether requests carry raw images, audio or video rather than JSON.
    #[must_use]
    pub const fn has_media_input(&self) -> bool {
        matches!(self.kind, Kind::Images | Kind::Audio | Kind::Videos)
    }

    /// Returns whether the path is in no table and not declared by the user.
    #[must_use]
    pub const fn is_other(&self) -> bool {
        matches!(self.kind, Kind::Other)
    }
}

/// Normalizes a path as servers may interpret it: decoded, without segment parameters and without
/// empty segments. For classification only; send the original.
///
/// ```
/// use tidegate_providers::request::plain_path;
/// assert_eq!(plain_path("/v1//chat%2Fcompletion%73;x=1/"), "/v1/chat/completions");
/// ```
#[must_use]
pub fn plain_path(path: &str) -> Cow<'_, str> {
    let is_odd = |byte| matches!(byte, b'%' | b';' | b'\\') || byte.is_ascii_whitespace();
    if !path.bytes().any(is_odd) && !path.contains("//") && !path.ends_with('/') {
        return Cow::Borrowed(path);
    }
    let mut decoded = path.as_bytes().to_vec();
    // A proxy and the server may both decode it.
    for _ in 0..MAX_DECODINGS {
        decoded = percent_decoded(&decoded);
    }
    let decoded = String::from_utf8_lossy(&decoded);
    let segments = decoded.split(['/', '\\']);
    let plain = segments.map(|segment| segment.split(';').next().unwrap_or_default().trim());
    let plain = plain.filter(|segment| !segment.is_empty());
    Cow::Owned(plain.fold(String::new(), |path, segment| path + "/" + segment))
}

pub(super) fn percent_decoded(bytes: &[u8]) -> Vec<u8> {
    let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let pair = (*byte == b'%').then(|| digit(at + 1).zip(digit(at + 2))).flatten();
        let value = pair.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        decoded.push(value.unwrap_or(*byte));
        at += if value.is_some() { 3 } else { 1 };
    }
    decoded
}

/// Finds a path by its suffix. Case is ignored, as some servers do.
fn by_suffix<'a>(
    table: &[(&str, Kind)],
    dialect: Dialect,
    path: &'a str,
) -> Option<PathPurpose<'a>> {
    let has_suffix = |suffix: &str| {
        let start = path.len().checked_sub(suffix.len())?;
        path.get(start..)?.eq_ignore_ascii_case(suffix).then_some(())
    };
    let (_, kind) = table.iter().find(|(suffix, _)| has_suffix(suffix).is_some())?;
    Some(PathPurpose { kind: *kind, dialect, model: None, is_streamed: None })
}

fn without_tokens(dialect: Dialect, path: &str) -> Option<PathPurpose<'_>> {
    let mut shapes = WITHOUT_TOKENS.iter();
    let (_, kind) = shapes.find(|(shape, _)| path_shape::matches(shape, path))?;
    Some(PathPurpose { kind: *kind, dialect, model: None, is_streamed: None })
}

/// Returns the deployment in a path of Azure, which takes the place of the model.
fn deployment(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once("/deployments/")?;
    rest.split('/').next().filter(|name| !name.is_empty())
}

/// Looks up a path of Gemini, whose last segment is `model:method`.
fn gemini(dialect: Dialect, path: &str) -> Option<PathPurpose<'_>> {
    let (_, last) = path.rsplit_once('/')?;
    let (model, method) = last.split_once(':')?;
    let (name, kind) = GEMINI.iter().find(|(name, _)| name.eq_ignore_ascii_case(method))?;
    let model = Some(model).filter(|model| !model.is_empty());
    Some(PathPurpose { kind: *kind, dialect, model, is_streamed: Some(name.starts_with("stream")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(dialect: Dialect, path: &str) -> Option<String> {
        Some(PathPurpose::lookup(dialect, path)?.endpoint().as_str().to_owned())
    }

    /// Found by libFuzzer: an empty name became a model of its own.
    #[test]
    fn path_with_an_empty_model_name_has_no_model() {
        for (dialect, path) in [
            (Dialect::Gemini, "/v1beta/models/:streamGenerateContent"),
            (Dialect::Gemini, "/v1beta/models/:generateAnswer"),
            (Dialect::Azure, "/openai/deployments//chat/completions"),
        ] {
            let purpose =
                PathPurpose::lookup(dialect, path).unwrap_or(PathPurpose::other(dialect, path));
            assert_eq!(purpose.model, None, "{path}");
        }
    }

    #[test]
    fn paths_of_every_family_are_known() {
        for (dialect, path, expected) in [
            (Dialect::OpenAi, "/v1/chat/completions", "chat"),
            (Dialect::OpenAi, "/v1/responses", "chat"),
            (Dialect::Groq, "/openai/v1/audio/transcriptions", "audio"),
            (Dialect::DeepSeek, "/chat/completions/", "chat"),
            (Dialect::OpenAi, "/v1/embeddings", "embeddings"),
            (Dialect::Anthropic, "/v1/messages", "chat"),
            (Dialect::Anthropic, "/v1/messages/count_tokens", "token_counting"),
            (Dialect::Anthropic, "/v1/messages/batches", "batches"),
            (Dialect::Gemini, "/v1/models/m:embedContent", "embeddings"),
            (Dialect::Gemini, "/v1beta/openai/chat/completions", "chat"),
            (Dialect::Ollama, "/api/generate", "chat"),
            (Dialect::Ollama, "/v1/embeddings", "embeddings"),
            (Dialect::OpenAi, "/v1/responses/compact", "chat"),
            (Dialect::OpenAi, "/v1/batches", "batches"),
            (Dialect::Anthropic, "/v1/files", "files"),
            (Dialect::Gemini, "/upload/v1beta/files", "files"),
            (Dialect::OpenAi, "/v1/uploads/u_1/parts", "files"),
        ] {
            assert_eq!(endpoint(dialect, path).as_deref(), Some(expected), "{path}");
        }
        for (dialect, path) in [
            (Dialect::OpenAi, "/v1/models"),
            (Dialect::OpenAi, "/v1/responses/resp_1/cancel"),
            (Dialect::Anthropic, "/v1/messages/batches/b_1"),
            (Dialect::Gemini, "/v1beta/models/m:tunedModels"),
            (Dialect::Ollama, "/api/tags"),
            (Dialect::OpenAi, "/v1/x/files"),
        ] {
            assert_eq!(endpoint(dialect, path), None, "{path}");
        }
    }

    #[test]
    fn unusual_spellings_normalize_to_the_same_path() {
        for (dialect, path) in [
            (Dialect::OpenAi, "/v1/chat/completion%73"),
            (Dialect::OpenAi, "/v1/chat%2Fcompletions"),
            (Dialect::OpenAi, "/v1/chat/completion%2573"),
            (Dialect::OpenAi, "/v1//chat//completions//"),
            (Dialect::OpenAi, "/v1/chat/completions/;x=1"),
            (Dialect::OpenAi, "/v1/chat;a/completions;x=1"),
            (Dialect::OpenAi, "/v1/Chat/Completions"),
            (Dialect::OpenAi, "/v1/chat/completions%20"),
            (Dialect::Anthropic, "/v1/message%73/"),
            (Dialect::Gemini, "/v1beta/models/m%3AgenerateContent"),
            (Dialect::Ollama, "//api/%63hat"),
        ] {
            assert_eq!(endpoint(dialect, &plain_path(path)).as_deref(), Some("chat"), "{path}");
        }
        for path in ["/v1/models/a%2Fb", "/v1/tools;x", "/%", "/%4", "/%zz/é", "", "%ff"] {
            assert_eq!(endpoint(Dialect::OpenAi, &plain_path(path)), None, "{path}");
        }
        let path = plain_path("/v1beta/models/Gemini-2:generateContent/");
        assert_eq!(PathPurpose::lookup(Dialect::Gemini, &path).unwrap().model, Some("Gemini-2"));
    }

    #[test]
    fn unknown_path_may_name_its_model() {
        for (dialect, path, model) in [
            (Dialect::Gemini, "/v1beta/models/gemini-2:generateAnswer", Some("gemini-2")),
            (Dialect::Gemini, "/v1beta/cachedContents", None),
            (Dialect::Azure, "/openai/deployments/gpt-4o/new", Some("gpt-4o")),
            (Dialect::OpenAi, "/v1/models/m:new", None),
        ] {
            let other = PathPurpose::other(dialect, path);
            assert_eq!((other.endpoint().as_str(), other.model), ("other", model), "{path}");
        }
    }

    #[test]
    fn path_determines_dialect_and_model() {
        let ollama = PathPurpose::lookup(Dialect::Ollama, "/v1/chat/completions").unwrap();
        assert_eq!(ollama.dialect, Dialect::Compatible);
        let path = "/openai/deployments/gpt-4o/chat/completions";
        assert_eq!(PathPurpose::lookup(Dialect::Azure, path).unwrap().model, Some("gpt-4o"));
    }
}
