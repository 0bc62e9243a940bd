//! The providers, and what each of them reads, writes and says of its limits.
//!
//! A dialect knows texts alone: it decides nothing, waits for nothing and charges nothing. Seven of
//! the ten are one implementation ([`compatible`]) with a description of what differs. None of it is
//! shared with the codecs that are tested against it.

mod anthropic;
mod azure;
mod compatible;
mod deepseek;
mod gemini;
mod groq;
mod mistral;
mod ollama;
mod openai;
mod openrouter;
mod together;

use std::fmt;

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use crate::calendar::Now;
use crate::limits::charging::CallCharge;
use crate::limits::quota::{Blocked, LimitSnapshot, Wait};
use crate::reporting::Reporting;
use crate::server::request::{Endpoint, Head, RequestSummary};

/// A provider, by the way its API looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// OpenAI: `/v1/chat/completions`, `/v1/embeddings`.
    OpenAi,
    /// Azure OpenAI: `/openai/deployments/{deployment}/chat/completions?api-version=…` and
    /// `…/embeddings`, and the same below `/openai/v1`.
    AzureOpenAi,
    /// Anthropic: `/v1/messages`.
    Anthropic,
    /// Gemini: `/v1beta/models/{model}:generateContent` and `:streamGenerateContent`, or `/v1/...`.
    Gemini,
    /// Groq: `/openai/v1/chat/completions`.
    Groq,
    /// Mistral: `/v1/chat/completions`, `/v1/embeddings`.
    Mistral,
    /// Together: `/v1/chat/completions`, `/v1/embeddings`.
    Together,
    /// OpenRouter: `/api/v1/chat/completions`.
    OpenRouter,
    /// DeepSeek: `/chat/completions`, also below `/v1`.
    DeepSeek,
    /// Ollama: `/api/chat`.
    Ollama,
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenAi => "OpenAI",
            Self::AzureOpenAi => "Azure OpenAI",
            Self::Anthropic => "Anthropic",
            Self::Gemini => "Gemini",
            Self::Groq => "Groq",
            Self::Mistral => "Mistral",
            Self::Together => "Together",
            Self::OpenRouter => "OpenRouter",
            Self::DeepSeek => "DeepSeek",
            Self::Ollama => "Ollama",
        })
    }
}

impl Dialect {
    pub(crate) fn codec(self) -> &'static dyn Codec {
        match self {
            Self::OpenAi => &openai::OPENAI,
            Self::AzureOpenAi => &azure::AZURE,
            Self::Anthropic => &anthropic::Anthropic,
            Self::Gemini => &gemini::Gemini,
            Self::Groq => &groq::GROQ,
            Self::Mistral => &mistral::MISTRAL,
            Self::Together => &together::TOGETHER,
            Self::OpenRouter => &openrouter::OPENROUTER,
            Self::DeepSeek => &deepseek::DEEPSEEK,
            Self::Ollama => &ollama::Ollama,
        }
    }

    pub(crate) fn has_limit(self, limit: &str) -> bool {
        match limit {
            "concurrency" => true,
            "acceleration" | "output tokens per minute" => self == Self::Anthropic,
            "tokens per minute" => !matches!(self, Self::Gemini | Self::DeepSeek | Self::Ollama),
            "input tokens per minute" => matches!(self, Self::Anthropic | Self::Gemini),
            _ => !matches!(self, Self::DeepSeek | Self::Ollama),
        }
    }
}

/// One provider's way of reading and writing.
pub(crate) trait Codec: Send + Sync {
    /// The endpoint at a path, and the model if the path names it.
    fn route(&self, path: &str) -> Option<(Endpoint, Option<String>)>;

    /// The key of a request.
    fn credential<'a>(&self, head: &'a Head) -> Option<&'a str>;

    /// Reads a request.
    fn parse_request(
        &self,
        head: &Head,
        endpoint: Endpoint,
        body: &Value,
    ) -> Result<RequestSummary, Failure>;

    /// The headers that tell of limits on an answer that succeeds.
    fn limit_headers(&self, context: &ResponseContext<'_>, headers: &mut ResponseHeaders);

    /// What is answered instead of an answer.
    fn error_response(&self, failure: &Failure, context: &ResponseContext<'_>) -> ErrorResponse;

    /// An answer that is not streamed.
    fn response_body(&self, content: &ResponseContent) -> Value;

    /// How a stream is labelled.
    fn stream_content_type(&self, parse_request: &RequestSummary) -> &'static str;

    /// What a stream begins with.
    fn stream_start(&self, content: &ResponseContent) -> String;

    /// One token of a stream.
    fn stream_token(&self, content: &ResponseContent, index: u64, word: &str) -> String;

    /// What a stream ends with.
    fn stream_end(&self, content: &ResponseContent) -> String;

    /// The event with which a stream fails.
    fn stream_error(&self, content: &ResponseContent) -> String;

    /// What a caller in the queue is sent from time to time: in a stream, and before an answer that
    /// is none. `None` holds the head back as well.
    fn keep_alive(&self, _streams: bool) -> Option<&'static str> {
        None
    }
}

/// Why a call is not answered, in the simulator's words.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// A limit refuses it.
    Limited(Blocked),
    /// Too many calls at the same time.
    Busy {
        limit: u64,
    },
    /// Refused on demand, with a wait in nanoseconds or without.
    Throttled {
        wait: Option<u64>,
    },
    /// The day's quota is used up, on demand.
    DayQuota {
        limit: u64,
        left: u64,
    },
    OutOfCredit,
    ServerError,
    Unavailable,
    Overloaded,
    BadKey,
    /// The model that nobody has, as it was asked for.
    NoModel(String),
    NoPath,
    BadRequest(&'static str),
}

/// What surrounds an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext<'a> {
    pub(crate) now: Now,
    /// The number of the call, which ids are made of.
    pub(crate) number: u64,
    pub(crate) model: &'a str,
    pub(crate) reporting: Reporting,
    /// The limits, as they are reported.
    pub(crate) snapshot: LimitSnapshot,
    /// What the call is charged.
    pub(crate) charge: CallCharge,
    pub(crate) endpoint: Option<Endpoint>,
}

impl ResponseContext<'_> {
    /// Whether nothing about limits is reported.
    pub(crate) fn hides_limits(&self) -> bool {
        self.reporting == Reporting::Never
    }

    /// The wait that a client is told of, in nanoseconds.
    pub(crate) fn wait(&self, failure: &Failure) -> Option<u64> {
        match failure {
            _ if self.hides_limits() => None,
            Failure::Limited(Blocked { wait: Wait::For(nanos), .. }) => Some(*nanos),
            Failure::Throttled { wait } => *wait,
            Failure::DayQuota { left, .. } => Some(*left),
            _ => None,
        }
    }

    /// A part of a text that has numbers of limits or waits in it, which a silent account leaves out.
    pub(crate) fn unless_hidden(&self, part: fmt::Arguments<'_>) -> String {
        if self.hides_limits() { String::new() } else { part.to_string() }
    }
}

/// An answer that is none.
#[derive(Debug)]
pub(crate) struct ErrorResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: ResponseHeaders,
    pub(crate) body: Value,
}

impl ErrorResponse {
    pub(crate) fn new(status: StatusCode, body: Value) -> Self {
        Self { status, headers: ResponseHeaders::default(), body }
    }
}

/// Header fields in the making.
#[derive(Debug, Default)]
pub(crate) struct ResponseHeaders(pub(crate) HeaderMap);

impl ResponseHeaders {
    pub(crate) fn set(&mut self, name: &'static str, value: impl fmt::Display) {
        // Only digits, dates and names of this crate come here, and they are all valid.
        if let Ok(value) = HeaderValue::from_str(&value.to_string()) {
            self.0.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Why an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// All was said.
    Stop,
    /// `max_tokens` was reached.
    Length,
}

/// An answer, as a dialect writes it.
#[derive(Clone, Debug)]
pub(crate) struct ResponseContent {
    pub(crate) number: u64,
    pub(crate) model: String,
    pub(crate) created: u64,
    pub(crate) endpoint: Endpoint,
    /// Texts to embed.
    pub(crate) inputs: usize,
    pub(crate) input: u64,
    pub(crate) cached: u64,
    pub(crate) output: u64,
    pub(crate) finish: Finish,
    pub(crate) include_usage: bool,
    pub(crate) sse: bool,
    /// Nanoseconds until the first token, and in all.
    pub(crate) timing: (u64, u64),
}
