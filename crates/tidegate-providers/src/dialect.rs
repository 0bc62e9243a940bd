//! Dialects: which API a provider speaks, and what is known of it.
//!
//! There are four families of them: OpenAI's API, which most providers speak with small
//! differences, Anthropic's, Gemini's and Ollama's. Each family writes requests and reads answers in
//! a module of its own.

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

/// The API that a provider speaks, with its own ways of telling limits and errors.
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
    /// Anything else that speaks OpenAI's API, such as vLLM.
    Compatible,
    /// A mock in this process, which no request leaves.
    Mock,
}

/// All dialects, by the name of their provider.
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
    /// The dialect whose API this one follows: a request of one is a request of any other of the same
    /// family. It is [`OpenAi`](Self::OpenAi), [`Anthropic`](Self::Anthropic),
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

    /// The dialect of a provider by its name; any other name is taken to speak OpenAI's API.
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

    /// What the paths of the API begin with, below a base URL that has no path: `/v1`.
    #[must_use]
    pub fn root(self) -> &'static str {
        Family::of(self).route(self, "", Mode::Whole).root
    }

    /// Whether servers of this dialect need not check keys: Ollama has none, and neither has many a
    /// server of one's own. A key says nothing about who calls there.
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

    /// Where the provider is; `None` where that depends on who asks (Azure, one's own server).
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
