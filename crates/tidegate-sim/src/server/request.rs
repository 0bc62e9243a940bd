//! A request, as far as a simulator wants to know it.
//!
//! The texts of prompts are counted and forgotten. Four headers let a test decide what a real
//! provider would not let it decide.

use http::{HeaderMap, Method, Uri};

use crate::dialect::Failure;
use crate::limits::charging::Estimate;
use crate::text;

/// How many tokens the answer has.
pub const OUTPUT_TOKENS: &str = "x-sim-output-tokens";
/// How many tokens the input has, whatever its characters say. The charge at admission is still
/// estimated from characters.
pub const INPUT_TOKENS: &str = "x-sim-input-tokens";
/// How many of the input tokens are in the provider's cache.
pub const CACHED_TOKENS: &str = "x-sim-cached-tokens";

/// The content coding that the answer comes in, whatever the caller accepts: `gzip`, `deflate`, `br` or
/// `zstd`. Others are ignored.
pub const CONTENT_CODING: &str = "x-sim-content-coding";

/// The most output tokens of an answer, so that a mistyped header fills no memory.
const MAX_OUTPUT: u64 = 1_000_000;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// A message of a conversation.
    Chat,
    /// The same, where streaming has a path of its own.
    ChatStream,
    /// Vectors of texts.
    Embeddings,
}

/// The head of a request. It has a key in it, so nothing can print it.
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
}

impl Head {
    pub(crate) fn path(&self) -> &str {
        self.uri.path()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn bearer(&self) -> Option<&str> {
        let value = self.header("authorization")?;
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    }

    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        let pairs = self.uri.query()?.split('&');
        pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, v)| v)
    }

    /// The number in one of the simulator's own headers.
    fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        let Some(value) = self.headers.get(name) else { return Ok(None) };
        let number = value.to_str().ok().and_then(|text| text.parse().ok());
        number
            .filter(|number| *number <= MAX_OUTPUT)
            .map(Some)
            .ok_or(Failure::BadRequest("an x-sim header is no whole number up to 1000000"))
    }
}

/// A request in the terms of all dialects.
#[derive(Clone, Debug)]
pub(crate) struct RequestSummary {
    pub(crate) endpoint: Endpoint,
    pub(crate) model: String,
    pub(crate) streams: bool,
    /// Whether a stream is made of events; else it is what the dialect has instead.
    pub(crate) sse: bool,
    pub(crate) include_usage: bool,
    pub(crate) max_output: Option<u64>,
    /// Answers made, of which one is returned.
    pub(crate) attempts: u64,
    /// Characters of the prompt.
    pub(crate) characters: u64,
    /// Texts to embed.
    pub(crate) inputs: usize,
}

/// The tokens of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens {
    pub(crate) input: u64,
    pub(crate) cached: u64,
    /// `None` leaves it to the account.
    pub(crate) output: Option<u64>,
}

impl RequestSummary {
    /// What the simulator's own headers and the characters say.
    pub(crate) fn tokens(&self, head: &Head) -> Result<Tokens, Failure> {
        let input = head.number(INPUT_TOKENS)?.unwrap_or_else(|| text::tokens(self.characters));
        let cached = head.number(CACHED_TOKENS)?.unwrap_or(0).min(input);
        Ok(Tokens { input, cached, output: head.number(OUTPUT_TOKENS)? })
    }

    pub(crate) fn estimate(&self, tokens: &Tokens) -> Estimate {
        Estimate {
            input: text::tokens(self.characters),
            cached: tokens.cached,
            max_output: match self.endpoint {
                Endpoint::Chat | Endpoint::ChatStream => self.max_output,
                Endpoint::Embeddings => Some(0),
            },
            attempts: self.attempts,
        }
    }
}
