//! The type of a message, and nothing else of it.
//!
//! It runs before the limits, so it must be cheap for whatever a client sends: one pass and no tree.
//! Of the heap it takes a byte for each level of nesting, and room for a type with escapes in it.

use std::borrow::Cow;

use serde::Deserialize;

/// The `type` of a JSON object, if it is a string; `None` if the frame is anything else.
///
/// An object with two types has none: readers differ in which of them counts, and a client must
/// not be charged for one and served the other.
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
    // A sequence would do for a struct as well; a message is an object.
    if frame.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return None;
    }
    serde_json::from_slice::<Envelope<'_>>(frame).ok().map(|envelope| envelope.message_type)
}

/// Fields that are not named here are passed over without being kept.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type", borrow)]
    message_type: Cow<'a, str>,
}
