//! Reads the type of a message, and nothing else.
//!
//! It runs before the limits, so it must be cheap for any input: one pass and no tree. It allocates
//! one byte per level of nesting, and space for a type that contains escapes.

use std::borrow::Cow;

use serde::Deserialize;

/// Returns the `type` of a JSON object, if it is a string; `None` if the frame is anything else.
///
/// An object with two types has none: parsers differ in which one they use, and a client must not
/// be charged for one type and served as another.
///
/// ```
/// use tidegate_ws::json_type;
/// assert_eq!(json_type(br#"{"payload":{"type":"x"},"type":"PING"}"#).as_deref(), Some("PING"));
/// assert_eq!(json_type(br#"{"type":"PING","type":"Compute"}"#), None);
/// assert_eq!(json_type(br#"{"type":7}"#), None);
/// assert_eq!(json_type(b"PING"), None);
/// ```
#[must_use]
pub fn json_type(frame: &[u8]) -> Option<Cow<'_, str>> {
    // Serde would also accept a sequence for a struct; a message must be an object.
    if frame.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return None;
    }
    serde_json::from_slice::<Envelope<'_>>(frame).ok().map(|envelope| envelope.message_type)
}

/// Unnamed fields are skipped without being stored.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type", borrow)]
    message_type: Cow<'a, str>,
}
