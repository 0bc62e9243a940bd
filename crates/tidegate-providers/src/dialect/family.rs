//! The four families of APIs, and what each implements.

use serde_json::{Map, Value};

use super::tool_calls::Calls;
use super::{anthropic, gemini, ollama, openai};
use crate::chat::Chat;
use crate::chat::Mode;
use crate::dialect::Dialect;
use crate::reply::{Event, StopReason};
use crate::request::RequestError;
use crate::response::DecodeError;

/// Family of APIs. Requests are interchangeable between the dialects of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// OpenAI and compatible providers.
    OpenAi,
    /// Anthropic.
    Anthropic,
    /// Gemini.
    Gemini,
    /// Ollama.
    Ollama,
}

/// Path of a request below the base URL: the API root, which the base URL may already include, and
/// the rest.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) root: &'static str,
    pub(crate) rest: String,
}

impl Family {
    /// Returns the family of a dialect.
    pub(crate) const fn of(dialect: Dialect) -> Self {
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

    /// Builds the body of a request, without the extra members of the chat.
    pub(crate) fn body(
        self,
        dialect: Dialect,
        model: &str,
        chat: &Chat,
        mode: Mode,
    ) -> Result<Map<String, Value>, RequestError> {
        match self {
            Self::OpenAi => Ok(openai::body(dialect, model, chat, mode)),
            Self::Anthropic => anthropic::body(model, chat, mode),
            Self::Gemini => gemini::body(chat),
            Self::Ollama => ollama::body(model, chat, mode),
        }
    }

    /// Returns the route of chat requests.
    pub(crate) fn route(self, dialect: Dialect, model: &str, mode: Mode) -> Route {
        match self {
            Self::OpenAi => openai::route(dialect),
            Self::Anthropic => anthropic::route(),
            Self::Gemini => gemini::route(model, mode),
            Self::Ollama => ollama::route(),
        }
    }

    pub(crate) fn reader(self) -> Box<dyn Reader> {
        match self {
            Self::OpenAi => Box::<openai::Reader>::default(),
            Self::Anthropic => Box::<anthropic::Reader>::default(),
            Self::Gemini => Box::<gemini::Reader>::default(),
            Self::Ollama => Box::<ollama::Reader>::default(),
        }
    }
}

/// Progress of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More must follow.
    #[default]
    Open,
    /// More may follow.
    Complete,
    /// Nothing relevant follows.
    Over,
}

/// State of a response while it is decoded.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(super) calls: Calls,
    pub(crate) stop: Option<StopReason>,
    pub(crate) progress: Progress,
}

/// Decoder of one family. It keeps the state that later pieces need.
pub(crate) trait Reader: Send + Sync {
    /// Reads one record of a stream.
    fn read(&mut self, piece: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError>;

    /// Reads a response received in one piece.
    fn read_whole(&mut self, body: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError>;

    fn state(&mut self) -> &mut State;

    /// Takes the stop reason, if known. Some providers have no separate reason for tool calls, so
    /// an ordinary end after tool calls becomes [`StopReason::Tools`].
    fn take_stop(&mut self) -> Option<StopReason> {
        let state = self.state();
        let stop = state.stop.take()?;
        let ends_with_calls = stop == StopReason::End && !state.calls.is_empty();
        Some(if ends_with_calls { StopReason::Tools } else { stop })
    }
}
