//! What the simulator reads of a request.
//!
//! Prompts are counted and not kept. Four headers let tests control what a real provider would
//! decide.

use http::{HeaderMap, Method, Uri};

use crate::dialect::Failure;
use crate::limits::charging::Estimate;
use crate::text;

/// Request header: number of tokens of the response.
pub const OUTPUT_TOKENS: &str = "x-sim-output-tokens";
/// Request header: number of input tokens. The charge at admission is still estimated from the
/// characters.
pub const INPUT_TOKENS: &str = "x-sim-input-tokens";
/// Request header: number of input tokens in the provider's cache.
pub const CACHED_TOKENS: &str = "x-sim-cached-tokens";

/// Request header: content coding of the response, whatever the caller accepts: `gzip`, `deflate`,
/// `br` or `zstd`. Others are ignored.
pub const CONTENT_CODING: &str = "x-sim-content-coding";

/// Maximum number of output tokens, so that a mistyped header cannot exhaust memory.
const MAX_OUTPUT: u64 = 1_000_000;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// Chat completion.
    Chat,
    /// Streamed chat completion, if streaming has its own path.
    ChatStream,
    /// Embeddings.
    Embeddings,
}

/// Method, URI and headers of a request. It contains a key, so it does not implement `Debug`.
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

    /// Parses the number in an `x-sim-` header.
    fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        let Some(value) = self.headers.get(name) else { return Ok(None) };
        let number = value.to_str().ok().and_then(|text| text.parse().ok());
        number
            .filter(|number| *number <= MAX_OUTPUT)
            .map(Some)
            .ok_or(Failure::BadRequest("an x-sim header is not a whole number up to 1000000"))
    }
}

/// What all dialects have in common in a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestSummary {
    pub(crate) endpoint: Endpoint,
    pub(crate) model: String,
    pub(crate) streams: bool,
    /// Whether a stream uses server-sent events.
    pub(crate) sse: bool,
    pub(crate) include_usage: bool,
    pub(crate) max_output: Option<u64>,
    /// Number of generated responses, of which one is returned (`best_of`).
    pub(crate) attempts: u64,
    /// Characters of the prompt.
    pub(crate) characters: u64,
    /// Number of texts to embed.
    pub(crate) inputs: usize,
}

/// Token counts of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens {
    pub(crate) input: u64,
    pub(crate) cached: u64,
    /// `None` means the default of the account.
    pub(crate) output: Option<u64>,
}

impl RequestSummary {
    /// Returns the token counts from the `x-sim-` headers or the characters.
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
