//! Decoding of provider responses, without I/O.
//!
//! [`decode`] reads a response received in one piece; a [`Decoder`] reads a stream. Unknown members
//! and events are ignored, since providers add both at any time. A response that cannot be
//! understood at all is an error, and one that is too large is rejected before it fills the memory.

mod error;
mod lines;
mod sse;
mod stream;
mod usage;

pub use error::DecodeError;
pub use stream::Decoder;

use crate::dialect::{Dialect, Family};
pub use crate::failure::request_id;
use crate::reply::{Event, Reply};

/// Decodes the events of a response received in one piece, as far as they can be read: events
/// before a missing member are returned.
///
/// # Errors
///
/// Fails if the body is not JSON, or is an error sent with a success status.
pub fn decode_events(dialect: Dialect, body: &[u8]) -> Result<Vec<Event>, DecodeError> {
    let body = serde_json::from_slice(body)?;
    let mut events: Vec<Event> = Vec::new();
    let read = Family::of(dialect).reader().read_whole(&body, &mut events);
    match read {
        Err(error @ DecodeError::ProviderError(_)) => Err(error),
        Ok(()) | Err(_) => Ok(events),
    }
}

/// Decodes a response received in one piece.
///
/// ```
/// use tidegate_providers::{Dialect, response};
/// let body = r#"{"choices":[{"message":{"content":"Elbe"},"finish_reason":"stop"}]}"#;
/// assert_eq!(response::decode(Dialect::OpenAi, body.as_bytes())?.text, "Elbe");
/// # Ok::<(), response::DecodeError>(())
/// ```
///
/// # Errors
///
/// Fails if the body is not a response, or is an error sent with a success status.
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
