//! The four families of APIs, and what each of them must be able to do.

use serde_json::{Map, Value};

use super::tool_calls::Calls;
use super::{anthropic, gemini, ollama, openai};
use crate::chat::Chat;
use crate::chat::Mode;
use crate::dialect::Dialect;
use crate::reply::{Event, StopReason};
use crate::request::RequestError;
use crate::response::DecodeError;

/// APIs that look alike: a request of one dialect is a request of any other of its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
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
pub(crate) struct Route {
    pub(crate) root: &'static str,
    pub(crate) rest: String,
}

impl Family {
    /// The family of a dialect.
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

    /// The body of a request, without what the chat has extra.
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

    /// Where a chat goes.
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

/// How far an answer has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Progress {
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
pub(crate) struct State {
    pub(super) calls: Calls,
    pub(crate) stop: Option<StopReason>,
    pub(crate) progress: Progress,
}

/// One family's way of reading an answer. It remembers what is needed to read the next piece.
pub(crate) trait Reader: Send + Sync {
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
