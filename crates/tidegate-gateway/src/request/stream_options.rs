//! `stream_options.include_usage`: makes a stream of OpenAI's API tell what it used.
//!
//! The option is written into the bytes of the request. Everything else of the request stays as the
//! caller wrote it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

const NAME: &str = "stream_options";
const INCLUDE_USAGE: &str = "include_usage";

/// The members of an object, as they are written.
pub(crate) type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// The request with the option. `None` if it has it already, or if it cannot be read.
pub(crate) fn with_usage(body: &[u8]) -> Option<Bytes> {
    let members: Members<'_> = serde_json::from_slice(body).ok()?;
    let Some(told) = members.get(NAME) else {
        let begin = body.iter().position(|byte| *byte == b'{')? + 1;
        let comma = if members.is_empty() { "" } else { "," };
        let option = format!(r#""{NAME}":{{"{INCLUDE_USAGE}":true}}{comma}"#);
        return Some([body.get(..begin)?, option.as_bytes(), body.get(begin..)?].concat().into());
    };
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
    let options = Value::Object(options).to_string();
    Some([body.get(..begin)?, options.as_bytes(), body.get(end..)?].concat().into())
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

    fn written(body: &str) -> Option<String> {
        with_usage(body.as_bytes()).map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
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
