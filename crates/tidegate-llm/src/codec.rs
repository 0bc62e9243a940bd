//! Codecs: requests into the words of a provider, and its answers out of them. Sans I/O.
//!
//! A [`Target`] is where requests go, and [`encode`](Target::encode)s chats for it. [`decode`] reads
//! an answer that came in one piece, a [`Decoder`] one that comes in many. There are four families
//! of APIs: OpenAI's, which most providers speak with small differences, Anthropic's, Gemini's and
//! Ollama's.
//!
//! Nothing here waits, connects or reads a clock, and nothing keeps state but a decoder. Answers are
//! read leniently: members that nobody knows are passed over, and so are events of unknown kinds,
//! since providers add both at any time. What cannot be understood at all is an error, and what is
//! too large is refused before it fills the memory.
//!
//! Not everything is put into words: no images, one choice of an answer (`n`), and no blocks of
//! reasoning that Anthropic wants to see again between calls of tools.

mod anthropic;
mod asked;
mod base;
mod calls;
pub mod classify;
mod delay;
mod error;
pub mod failure;
mod family;
mod gemini;
mod json;
pub mod limits;
mod lines;
mod ollama;
mod openai;
mod path;
mod responses;
mod size;
mod sse;
mod stream;
mod target;
mod usage;

pub use anthropic::DEFAULT_MAX_TOKENS;
pub use asked::Asked;
pub use base::Base;
pub use error::{DecodeError, EncodeError, ErrorBody, TargetError};
pub use family::{Family, key_field, root};
pub use path::{Purpose, plain_path};
pub use size::size_limit;
pub use stream::{Decoder, MAX_EVENT};
pub use target::{AZURE_API_VERSION, Target};
pub use usage::usage;

use crate::answer::{Event, Reply};
use crate::dialect::Dialect;

/// Reads an answer that came in one piece.
///
/// ```
/// use tidegate_llm::{Dialect, codec};
/// let body = r#"{"choices":[{"message":{"content":"Elbe"},"finish_reason":"stop"}]}"#;
/// assert_eq!(codec::decode(Dialect::OpenAi, body.as_bytes())?.text, "Elbe");
/// # Ok::<(), codec::DecodeError>(())
/// ```
///
/// # Errors
///
/// If it is no answer, or an error that came with a status of success.
pub fn decode(dialect: Dialect, body: &[u8]) -> Result<Reply, DecodeError> {
    let body = serde_json::from_slice(body)?;
    let mut events: Vec<Event> = Vec::new();
    let mut reader = Family::of(dialect).reader();
    reader.read_whole(&body, &mut events)?;
    let mut reply = Reply { stop: reader.take_stop(), ..Reply::default() };
    for event in events {
        reply.add(event);
    }
    Ok(reply)
}
