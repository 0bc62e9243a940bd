//! Dialects: the request, response and error formats of providers.
//!
//! A dialect only reads and writes; it decides nothing. Seven of the ten share one implementation
//! ([`compatible`]) with a description of the differences. No code is shared with the codecs that
//! are tested against it.

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

/// A provider's API.
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

/// Reads and writes the format of one provider.
pub(crate) trait Codec: Send + Sync {
    /// Returns the endpoint of a path, and the model if the path contains it.
    fn route(&self, path: &str) -> Option<(Endpoint, Option<String>)>;

    /// Returns the API key of a request.
    fn credential<'a>(&self, head: &'a Head) -> Option<&'a str>;

    /// Parses a request.
    fn parse_request(
        &self,
        head: &Head,
        endpoint: Endpoint,
        body: &Value,
    ) -> Result<RequestSummary, Failure>;

    /// Adds the headers about limits to a successful response.
    fn limit_headers(&self, context: &ResponseContext<'_>, headers: &mut ResponseHeaders);

    /// Builds an error response.
    fn error_response(&self, failure: &Failure, context: &ResponseContext<'_>) -> ErrorResponse;

    /// Builds the body of a response that is not streamed.
    fn response_body(&self, content: &ResponseContent) -> Value;

    /// Returns the content type of a stream.
    fn stream_content_type(&self, parse_request: &RequestSummary) -> &'static str;

    /// Returns the start of a stream.
    fn stream_start(&self, content: &ResponseContent) -> String;

    /// Returns one token of a stream.
    fn stream_token(&self, content: &ResponseContent, index: u64, word: &str) -> String;

    /// Returns the end of a stream.
    fn stream_end(&self, content: &ResponseContent) -> String;

    /// Returns the error event of a failing stream.
    fn stream_error(&self, content: &ResponseContent) -> String;

    /// Returns what is sent periodically to queued callers; `None` if even the headers are held
    /// back. `_streams` tells whether the response is a stream.
    fn keep_alive(&self, _streams: bool) -> Option<&'static str> {
        None
    }
}

/// Why a call fails, independent of the dialect.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// A limit rejects the call.
    Limited(Blocked),
    /// Too many concurrent calls.
    Busy {
        limit: u64,
    },
    /// Rejected by a fault, with an optional wait in nanoseconds.
    Throttled {
        wait: Option<u64>,
    },
    /// The quota of the day is exhausted, by a fault.
    DayQuota {
        limit: u64,
        left: u64,
    },
    OutOfCredit,
    ServerError,
    Unavailable,
    Overloaded,
    BadKey,
    /// The requested model does not exist.
    NoModel(String),
    NoPath,
    BadRequest(&'static str),
}

/// Context of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext<'a> {
    pub(crate) now: Now,
    /// Number of the call, used for ids.
    pub(crate) number: u64,
    pub(crate) model: &'a str,
    pub(crate) reporting: Reporting,
    /// The limits to report.
    pub(crate) snapshot: LimitSnapshot,
    /// The charge of the call.
    pub(crate) charge: CallCharge,
    pub(crate) endpoint: Option<Endpoint>,
}

impl ResponseContext<'_> {
    /// Returns whether nothing about limits is reported.
    pub(crate) fn hides_limits(&self) -> bool {
        self.reporting == Reporting::Never
    }

    /// Returns the wait to report, in nanoseconds.
    pub(crate) fn wait(&self, failure: &Failure) -> Option<u64> {
        match failure {
            _ if self.hides_limits() => None,
            Failure::Limited(Blocked { wait: Wait::For(nanos), .. }) => Some(*nanos),
            Failure::Throttled { wait } => *wait,
            Failure::DayQuota { left, .. } => Some(*left),
            _ => None,
        }
    }

    /// Returns a part of a message that contains limits or waits, or the empty string if those are
    /// hidden.
    pub(crate) fn unless_hidden(&self, part: fmt::Arguments<'_>) -> String {
        if self.hides_limits() { String::new() } else { part.to_string() }
    }
}

/// An error response.
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

/// Response headers.
#[derive(Debug, Default)]
pub(crate) struct ResponseHeaders(pub(crate) HeaderMap);

impl ResponseHeaders {
    pub(crate) fn set(&mut self, name: &'static str, value: impl fmt::Display) {
        // Values are numbers, dates and names of this crate, which are always valid.
        if let Ok(value) = HeaderValue::from_str(&value.to_string()) {
            self.0.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Why a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The response is complete.
    Stop,
    /// `max_tokens` was reached.
    Length,
}

/// Content of a successful response.
#[derive(Clone, Debug)]
pub(crate) struct ResponseContent {
    pub(crate) number: u64,
    pub(crate) model: String,
    pub(crate) created: u64,
    pub(crate) endpoint: Endpoint,
    /// Number of texts to embed.
    pub(crate) inputs: usize,
    pub(crate) input: u64,
    pub(crate) cached: u64,
    pub(crate) output: u64,
    pub(crate) finish: Finish,
    pub(crate) include_usage: bool,
    pub(crate) sse: bool,
    /// Nanoseconds until the first token, and in total.
    pub(crate) timing: (u64, u64),
}
