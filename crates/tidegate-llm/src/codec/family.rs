//! The four families of APIs, and what each of them must be able to do.

use http::HeaderValue;
use http::header::{AUTHORIZATION, HeaderName};
use serde_json::{Map, Value};

use super::calls::Calls;
use super::error::{DecodeError, EncodeError, TargetError};
use super::{anthropic, gemini, ollama, openai};
use crate::answer::{Event, StopReason};
use crate::call::Mode;
use crate::chat::Chat;
use crate::dialect::Dialect;

/// APIs that look alike: a request of one dialect is a request of any other of its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// OpenAI, and all who speak its API.
    OpenAi,
    /// Anthropic.
    Anthropic,
    /// Gemini.
    Gemini,
    /// Ollama.
    Ollama,
}

/// Where a request goes below the base URL: a root, which a base URL may have already, and the rest.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) root: &'static str,
    pub(super) rest: String,
}

impl Family {
    /// The family of a dialect.
    #[must_use]
    pub const fn of(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Anthropic => Self::Anthropic,
            Dialect::Gemini => Self::Gemini,
            Dialect::Ollama => Self::Ollama,
            Dialect::OpenAi
            | Dialect::Azure
            | Dialect::Groq
            | Dialect::Mistral
            | Dialect::Together
            | Dialect::OpenRouter
            | Dialect::DeepSeek
            | Dialect::Compatible
            | Dialect::Mock => Self::OpenAi,
        }
    }

    /// The body of a request, without what the chat has extra.
    pub(super) fn body(
        self,
        dialect: Dialect,
        model: &str,
        chat: &Chat,
        mode: Mode,
    ) -> Result<Map<String, Value>, EncodeError> {
        match self {
            Self::OpenAi => Ok(openai::body(dialect, model, chat, mode)),
            Self::Anthropic => anthropic::body(model, chat, mode),
            Self::Gemini => gemini::body(chat),
            Self::Ollama => ollama::body(model, chat, mode),
        }
    }

    /// Where a chat goes.
    pub(super) fn route(self, dialect: Dialect, model: &str, mode: Mode) -> Route {
        match self {
            Self::OpenAi => openai::route(dialect),
            Self::Anthropic => anthropic::route(),
            Self::Gemini => gemini::route(model, mode),
            Self::Ollama => ollama::route(),
        }
    }

    pub(super) fn reader(self) -> Box<dyn Reader> {
        match self {
            Self::OpenAi => Box::<openai::Reader>::default(),
            Self::Anthropic => Box::<anthropic::Reader>::default(),
            Self::Gemini => Box::<gemini::Reader>::default(),
            Self::Ollama => Box::<ollama::Reader>::default(),
        }
    }
}

/// What the paths of a dialect begin with, below a base URL that has no path: `/v1`.
#[must_use]
pub fn root(dialect: Dialect) -> &'static str {
    Family::of(dialect).route(dialect, "", Mode::Whole).root
}

/// The header field that has the key, if there is one. It is marked as a secret.
///
/// # Errors
/// If the key has characters that no header field can have.
pub fn key_field(
    dialect: Dialect,
    key: Option<&str>,
) -> Result<Option<(HeaderName, HeaderValue)>, TargetError> {
    let Some(key) = key else { return Ok(None) };
    let (name, text) = match dialect {
        Dialect::Azure => (HeaderName::from_static("api-key"), key.to_owned()),
        Dialect::Anthropic => (HeaderName::from_static("x-api-key"), key.to_owned()),
        Dialect::Gemini => (HeaderName::from_static("x-goog-api-key"), key.to_owned()),
        _ => (AUTHORIZATION, format!("Bearer {key}")),
    };
    let mut value = HeaderValue::try_from(text).map_err(|_| TargetError::Key)?;
    value.set_sensitive(true);
    Ok(Some((name, value)))
}

/// How far an answer has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Progress {
    /// More must come.
    #[default]
    Open,
    /// More may come, but need not.
    Complete,
    /// Nothing more comes that matters.
    Over,
}

/// What is known of an answer while it is read.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) calls: Calls,
    pub(super) stop: Option<StopReason>,
    pub(super) progress: Progress,
}

/// One family's way of reading an answer. It remembers what is needed to read the next piece.
pub(super) trait Reader: Send + Sync {
    /// Reads one piece of a stream.
    fn read(&mut self, piece: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError>;

    /// Reads an answer in one piece.
    fn read_whole(&mut self, body: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError>;

    fn state(&mut self) -> &mut State;

    /// Why the answer ends, if that was said. It is told last, whenever it was said. For some
    /// providers calls are no reason of their own.
    fn take_stop(&mut self) -> Option<StopReason> {
        let state = self.state();
        let stop = state.stop.take()?;
        let wants_calls = stop == StopReason::End && !state.calls.is_empty();
        Some(if wants_calls { StopReason::Tools } else { stop })
    }
}
