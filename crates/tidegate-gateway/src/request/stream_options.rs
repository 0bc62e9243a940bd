//! `stream_options.include_usage`: makes a stream of the OpenAI API report its usage.
//!
//! The option is inserted into the bytes of the request. Everything else stays as the caller wrote
//! it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::request::edits::Edit;

const NAME: &str = "stream_options";
const INCLUDE_USAGE: &str = "include_usage";
/// Maximum length of `stream_options`. A longer value is not parsed; no real client sends one.
const MAX_OPTIONS_LEN: usize = 4_096;

/// Members of a JSON object with their raw values.
pub(crate) type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// Returns the edit that adds the option to a request; `None` if the request has it already or
/// cannot be parsed.
pub(crate) fn usage_edit(body: &[u8]) -> Option<Edit> {
    let StreamOptionsMember { is_empty, option } = serde_json::from_slice(body).ok()?;
    let Some(existing) = option else {
        let start = body.iter().position(|byte| *byte == b'{')? + 1;
        let comma = if is_empty { "" } else { "," };
        let text = format!(r#""{NAME}":{{"{INCLUDE_USAGE}":true}}{comma}"#);
        return Some(Edit { span: start..start, text: text.into() });
    };
    let existing = Some(existing).filter(|existing| existing.get().len() <= MAX_OPTIONS_LEN)?;
    let mut options = match serde_json::from_str(existing.get()).ok()? {
        Value::Null => Map::new(),
        Value::Object(options) => options,
        _ => return None,
    };
    if options.get(INCLUDE_USAGE) == Some(&Value::Bool(true)) {
        return None;
    }
    options.insert(INCLUDE_USAGE.to_owned(), true.into());
    let (start, end) = span_of(body, existing)?;
    Some(Edit { span: start..end, text: Value::Object(options).to_string().into() })
}

/// The `stream_options` of a request. Nothing else is kept: the request may have millions of
/// members.
struct StreamOptionsMember<'a> {
    /// Whether the request object has no members.
    is_empty: bool,
    option: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for StreamOptionsMember<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = StreamOptionsMember<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<StreamOptionsMember<'de>, A::Error> {
                let mut member = StreamOptionsMember { is_empty: true, option: None };
                while let Some(IsOption(is_option)) = map.next_key()? {
                    member.is_empty = false;
                    if is_option {
                        member.option = Some(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(member)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Whether a member name is `stream_options`.
struct IsOption(bool);

impl<'de> Deserialize<'de> for IsOption {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = IsOption;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<IsOption, E> {
                Ok(IsOption(name == NAME))
            }
        }
        deserializer.deserialize_str(Name)
    }
}

/// Returns the span of a value within the text it was parsed from.
pub(crate) fn span_of(text: &[u8], value: &RawValue) -> Option<(usize, usize)> {
    let start = value.get().as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let end = start.checked_add(value.get().len())?;
    (end <= text.len()).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::edits::apply;

    fn edited(body: &str) -> Option<String> {
        let edit = usage_edit(body.as_bytes())?;
        Some(String::from_utf8(apply(&body.to_owned().into(), [&edit]).concat()).unwrap())
    }

    #[test]
    fn only_the_option_is_added() {
        for (body, expected) in [
            (
                r#" {"seed": 1e400, "stream":true}"#,
                r#" {"stream_options":{"include_usage":true},"seed": 1e400, "stream":true}"#,
            ),
            ("{}", r#"{"stream_options":{"include_usage":true}}"#),
            (
                r#"{"stream_options": null ,"a":1}"#,
                r#"{"stream_options": {"include_usage":true} ,"a":1}"#,
            ),
            (
                r#"{"stream_options":{"x":1,"include_usage":false}}"#,
                r#"{"stream_options":{"include_usage":true,"x":1}}"#,
            ),
        ] {
            assert_eq!(edited(body).as_deref(), Some(expected));
        }
    }

    #[test]
    fn requests_with_the_option_or_unreadable_are_unchanged() {
        for body in
            [r#"{"stream_options":{"include_usage":true}}"#, "[]", "{", r#"{"stream_options":1}"#]
        {
            assert_eq!(edited(body), None, "{body}");
        }
    }
}
