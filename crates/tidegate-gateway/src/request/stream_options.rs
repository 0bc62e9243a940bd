//! `stream_options.include_usage`: makes a stream of OpenAI's API tell what it used.
//!
//! The option is written into the bytes of the request. Everything else of the request stays as the
//! caller wrote it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::request::edits::Edit;

const NAME: &str = "stream_options";
const INCLUDE_USAGE: &str = "include_usage";
/// No client has longer options; of a longer value a tree is not made.
const LONGEST: usize = 4_096;

/// The members of an object, as they are written.
pub(crate) type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// The edit that puts the option into a request. `None` if it has it already, or if it cannot be read.
pub(crate) fn usage_edit(body: &[u8]) -> Option<Edit> {
    let Found { is_empty, option } = serde_json::from_slice(body).ok()?;
    let Some(told) = option else {
        let begin = body.iter().position(|byte| *byte == b'{')? + 1;
        let comma = if is_empty { "" } else { "," };
        let text = format!(r#""{NAME}":{{"{INCLUDE_USAGE}":true}}{comma}"#);
        return Some(Edit { place: begin..begin, text: text.into() });
    };
    let told = Some(told).filter(|told| told.get().len() <= LONGEST)?;
    let mut options = match serde_json::from_str(told.get()).ok()? {
        Value::Null => Map::new(),
        Value::Object(options) => options,
        _ => return None,
    };
    if options.get(INCLUDE_USAGE) == Some(&Value::Bool(true)) {
        return None;
    }
    options.insert(INCLUDE_USAGE.to_owned(), true.into());
    let (begin, end) = place(body, told)?;
    Some(Edit { place: begin..end, text: Value::Object(options).to_string().into() })
}

/// What a request says about its stream. Nothing else is kept of it: it may have millions of members.
struct Found<'a> {
    is_empty: bool,
    option: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Found<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Found<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found<'de>, A::Error> {
                let mut found = Found { is_empty: true, option: None };
                while let Some(IsOption(is_option)) = map.next_key()? {
                    found.is_empty = false;
                    if is_option {
                        found.option = Some(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Whether the name of a member is that of the option.
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

/// Where in a text a value of it stands.
pub(crate) fn place(text: &[u8], value: &RawValue) -> Option<(usize, usize)> {
    let begin = value.get().as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let end = begin.checked_add(value.get().len())?;
    (end <= text.len()).then_some((begin, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::edits::pieces;

    fn written(body: &str) -> Option<String> {
        let edit = usage_edit(body.as_bytes())?;
        Some(String::from_utf8(pieces(&body.to_owned().into(), [&edit]).concat()).unwrap())
    }

    #[test]
    fn the_option_is_added_and_nothing_else_is_changed() {
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
            assert_eq!(written(body).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_request_that_has_it_or_cannot_be_read_stays() {
        for body in
            [r#"{"stream_options":{"include_usage":true}}"#, "[]", "{", r#"{"stream_options":1}"#]
        {
            assert_eq!(written(body), None, "{body}");
        }
    }
}
