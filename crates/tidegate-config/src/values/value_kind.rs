//! Kinds of values: how text from the environment is read, and what the schema says.

use serde_json::{Value as Json, json};

use crate::values::value::{Node, Number};

/// The kind of a value. Further rules are checked by the key itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// Any string.
    Text,
    /// A string that matches a regular expression.
    Form(&'static str),
    /// One of the given words.
    Words(&'static [&'static str]),
    /// An integer within bounds.
    Whole(u64, u64),
    /// A number, possibly with a fraction.
    Number,
    /// A boolean.
    Switch,
    /// A list of strings; comma-separated in the environment.
    Texts,
    /// A list of integers within bounds; comma-separated in the environment.
    Wholes(u64, u64),
    /// A number of bytes, or a string with a unit.
    Size,
}

/// A duration.
pub(crate) const DURATION: ValueKind = ValueKind::Form("^[0-9]+ ?(ms|s|m|h)$");
/// A positive integer that fits 32 bits.
pub(crate) const COUNT: ValueKind = ValueKind::Whole(1, u32::MAX as u64);

impl ValueKind {
    /// Reads text from the environment or the command line.
    pub(crate) fn read(self, text: &str) -> Node<'_> {
        let number = match self {
            Self::Whole(..) | Self::Size => whole(text),
            Self::Number => whole(text).or_else(|| {
                text.parse().ok().filter(|float: &f64| float.is_finite()).map(Number::Float)
            }),
            _ => None,
        };
        match (self, text) {
            (Self::Switch, "true") => Node::Bool(true),
            (Self::Switch, "false") => Node::Bool(false),
            _ => number.map_or(Node::Text(text.into()), Node::Number),
        }
    }

    /// Reads text that may also be JSON.
    pub(crate) fn read_json(self, text: &str) -> Json {
        let parsed = || serde_json::from_str::<Json>(text).ok();
        let json = match (self, text.as_bytes().first()) {
            (_, Some(b'"' | b'[' | b'{')) => parsed(),
            _ if text == "null" => parsed(),
            _ => None,
        };
        json.unwrap_or_else(|| crate::values::value::Value::from(self.read(text)).json())
    }

    /// Returns the JSON Schema of the kind.
    pub(crate) fn schema(self) -> Json {
        match self {
            Self::Text => json!({ "type": "string" }),
            Self::Form(pattern) => json!({ "type": "string", "pattern": pattern }),
            Self::Words(words) => json!({ "enum": words }),
            Self::Whole(least, u64::MAX) => json!({ "type": "integer", "minimum": least }),
            Self::Whole(least, most) => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            Self::Number => json!({ "type": "number", "minimum": 0 }),
            Self::Switch => json!({ "type": "boolean" }),
            Self::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            Self::Wholes(least, most) => json!({
                "type": "array",
                "items": { "type": "integer", "minimum": least, "maximum": most },
            }),
            Self::Size => json!({ "type": ["string", "integer"] }),
        }
    }
}

fn whole(text: &str) -> Option<Number> {
    match text.parse() {
        Ok(whole) => Some(Number::Whole(whole)),
        Err(_) => text.parse().ok().map(Number::Negative),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_the_kind_of_the_key() {
        let read = |kind: ValueKind, text| kind.read_json(text).to_string();
        assert_eq!(read(COUNT, "8"), "8");
        assert_eq!(read(COUNT, "-3"), "-3");
        assert_eq!(read(COUNT, "many"), "\"many\"");
        assert_eq!(read(ValueKind::Number, "1.5"), "1.5");
        assert_eq!(read(ValueKind::Text, "8"), "\"8\"");
        assert_eq!(read(ValueKind::Text, "\"50/s\""), "\"50/s\"");
        assert_eq!(read(ValueKind::Switch, "true"), "true");
        assert_eq!(read(ValueKind::Texts, "[\"a\"]"), "[\"a\"]");
        assert_eq!(read(ValueKind::Texts, "a, b"), "\"a, b\"");
        assert_eq!(read(ValueKind::Texts, "[a"), "\"[a\"");
        assert_eq!(read(COUNT, "null"), "null");
    }
}
