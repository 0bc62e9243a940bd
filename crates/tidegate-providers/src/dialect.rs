//! Dialects: the wire formats of providers.
//!
//! There are four families: OpenAI's API, which most providers offer with small differences,
//! Anthropic's, Gemini's and Ollama's. Each family has a module that encodes requests and decodes
//! responses.

pub(crate) mod anthropic;
mod family;
pub(crate) mod gemini;
pub(crate) mod json;
pub(crate) mod ollama;
pub(crate) mod openai;
mod responses;
mod tool_calls;

pub(crate) use family::Family;
pub(crate) use family::{Progress, Reader, Route};

use crate::chat::Mode;
use crate::provider::Provider;

/// Wire format of a provider's API, including how it reports limits and errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// OpenAI.
    OpenAi,
    /// Azure OpenAI.
    Azure,
    /// Anthropic.
    Anthropic,
    /// Gemini API and Vertex.
    Gemini,
    /// Groq.
    Groq,
    /// Mistral.
    Mistral,
    /// Together.
    Together,
    /// OpenRouter.
    OpenRouter,
    /// DeepSeek.
    DeepSeek,
    /// Ollama.
    Ollama,
    /// Any other server with OpenAI's API, such as vLLM.
    Compatible,
    /// In-process mock without HTTP.
    Mock,
}

/// Dialects by the name of their provider.
const NAMES: &[(&str, Dialect)] = &[
    ("openai", Dialect::OpenAi),
    ("azure", Dialect::Azure),
    ("anthropic", Dialect::Anthropic),
    ("gemini", Dialect::Gemini),
    ("groq", Dialect::Groq),
    ("mistral", Dialect::Mistral),
    ("together", Dialect::Together),
    ("openrouter", Dialect::OpenRouter),
    ("deepseek", Dialect::DeepSeek),
    ("ollama", Dialect::Ollama),
    ("mock", Dialect::Mock),
];

impl Dialect {
    /// Returns the family: the dialect whose API this one follows. Requests are interchangeable
    /// within a family. It is [`OpenAi`](Self::OpenAi), [`Anthropic`](Self::Anthropic),
    /// [`Gemini`](Self::Gemini) or [`Ollama`](Self::Ollama).
    ///
    /// ```
    /// use tidegate_providers::Dialect;
    /// assert_eq!(Dialect::Groq.family(), Dialect::OpenAi);
    /// assert_eq!(Dialect::Gemini.family(), Dialect::Gemini);
    /// ```
    #[must_use]
    pub const fn family(self) -> Self {
        match Family::of(self) {
            Family::OpenAi => Self::OpenAi,
            Family::Anthropic => Self::Anthropic,
            Family::Gemini => Self::Gemini,
            Family::Ollama => Self::Ollama,
        }
    }

    /// Returns the dialect of a provider by its name. Unknown names are taken for OpenAI-compatible
    /// providers.
    ///
    /// ```
    /// use tidegate_providers::Dialect;
    /// assert_eq!(Dialect::of(&"Anthropic".into()), Dialect::Anthropic);
    /// assert_eq!(Dialect::of(&"my-vllm".into()), Dialect::Compatible);
    /// ```
    #[must_use]
    pub fn of(provider: &Provider) -> Self {
        let known = NAMES.iter().find(|(name, _)| *name == provider.as_str());
        known.map_or(Self::Compatible, |(_, dialect)| *dialect)
    }

    /// Returns the prefix of the API's paths, such as `/v1`.
    #[must_use]
    pub fn root(self) -> &'static str {
        Family::of(self).route(self, "", Mode::Complete).root
    }

    /// Returns whether servers of this dialect may accept any key, as Ollama and many self-hosted
    /// servers do. There a key does not identify the caller.
    ///
    /// ```
    /// use tidegate_providers::Dialect;
    /// assert!(Dialect::Ollama.is_keyless() && Dialect::Compatible.is_keyless());
    /// assert!(!Dialect::OpenAi.is_keyless());
    /// ```
    #[must_use]
    pub const fn is_keyless(self) -> bool {
        matches!(self, Self::Ollama | Self::Compatible | Self::Mock)
    }

    /// Returns the base URL of the provider; `None` if it depends on the user (Azure, self-hosted
    /// servers).
    #[must_use]
    pub const fn base_url(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => Some("https://api.openai.com"),
            Self::Anthropic => Some("https://api.anthropic.com"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com"),
            Self::Groq => Some("https://api.groq.com"),
            Self::Mistral => Some("https://api.mistral.ai"),
            Self::Together => Some("https://api.together.xyz"),
            Self::OpenRouter => Some("https://openrouter.ai"),
            Self::DeepSeek => Some("https://api.deepseek.com"),
            Self::Ollama => Some("http://127.0.0.1:11434"),
            Self::Azure | Self::Compatible | Self::Mock => None,
        }
    }
}
