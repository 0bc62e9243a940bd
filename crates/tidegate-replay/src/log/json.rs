//! Logs with one JSON object per line.
//!
//! A scanner that finds the values of three fields, without a tree and without allocation. It
//! skips the rest of the line only as far as it must to find where values end, so it accepts some
//! lines that are not quite JSON. It never reads a value of valid JSON wrongly.

use memchr::memchr2;

use crate::log::fields::FieldNames;
use crate::log::line_error::LineError;
use crate::log::{RawEvent, timestamp, whole_number};

/// Reads lines of JSON logs.
#[derive(Clone, Debug)]
pub(crate) struct JsonParser {
    names: FieldNames,
    /// The key without its escapes.
    unescaped: Vec<u8>,
}

/// A value as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written<'l> {
    /// The text between quotes.
    Text(&'l [u8]),
    /// A number or a word.
    Bare(&'l [u8]),
    /// An object or an array, with its brackets.
    Nested(&'l [u8]),
}

impl JsonParser {
    pub(crate) fn new(names: FieldNames) -> Self {
        Self { names, unescaped: Vec::new() }
    }

    pub(crate) fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<RawEvent<'a>, LineError> {
        let [time, key, cost] = self.find(line)?;
        let time = match time {
            None => return Err(LineError::Missing("time")),
            Some(Written::Nested(_)) => return Err(LineError::Time),
            Some(Written::Text(text) | Written::Bare(text)) => timestamp::parse(text)?,
        };
        let cost = match cost {
            None | Some(Written::Bare(b"null")) => 1,
            Some(Written::Nested(_)) => return Err(LineError::Cost),
            Some(Written::Text(text) | Written::Bare(text)) => {
                whole_number(text).ok_or(LineError::Cost)?
            }
        };
        let key = match key {
            None | Some(Written::Bare(b"null")) => return Err(LineError::Missing("key")),
            Some(Written::Nested(_)) => return Err(LineError::KeyKind),
            Some(Written::Bare(text)) => text,
            Some(Written::Text(text)) if !text.contains(&b'\\') => text,
            Some(Written::Text(text)) => {
                unescape(text, &mut self.unescaped);
                &self.unescaped
            }
        };
        Ok(RawEvent { key, time, cost })
    }

    /// Returns the values of the three fields: for each the first of its names that occurs.
    fn find<'l>(&self, line: &'l [u8]) -> Result<[Option<Written<'l>>; 3], LineError> {
        let mut found: [Option<(usize, Written<'l>)>; 3] = [None; 3];
        members(line, &mut |name, value| {
            for (names, found) in self.names.names.iter().zip(&mut found) {
                // A name that occurs twice has its last value, as in most JSON parsers.
                let best = found.map_or(names.len(), |(rank, _)| rank + 1);
                for (rank, wanted) in names[..best.min(names.len())].iter().enumerate() {
                    if let Some(value) = select(name, value, wanted.as_bytes()) {
                        *found = Some((rank, value));
                        break;
                    }
                }
            }
        })?;
        Ok(found.map(|found| found.map(|(_, value)| value)))
    }
}

/// Returns the value that `wanted` names: this one, or one inside it if `wanted` is a path such as
/// `request.client_ip`.
fn select<'l>(name: &[u8], value: Written<'l>, wanted: &[u8]) -> Option<Written<'l>> {
    if name == wanted {
        return Some(value);
    }
    let inner = wanted.strip_prefix(name)?.strip_prefix(b".")?;
    let Written::Nested(object) = value else { return None };
    let mut found = None;
    members(object, &mut |name, value| found = select(name, value, inner).or(found)).ok()?;
    found
}

/// Calls `visit` with the name and the value of each member of an object.
fn members<'l>(
    text: &'l [u8],
    visit: &mut dyn FnMut(&'l [u8], Written<'l>),
) -> Result<(), LineError> {
    let bad = LineError::NotJson;
    let mut rest = text.trim_ascii().strip_prefix(b"{").ok_or(bad)?.trim_ascii_start();
    if let Some(after) = rest.strip_prefix(b"}") {
        return if after.is_empty() { Ok(()) } else { Err(bad) };
    }
    loop {
        let (name, after) = string(rest.strip_prefix(b"\"").ok_or(bad)?)?;
        let after = after.trim_ascii_start().strip_prefix(b":").ok_or(bad)?;
        let (value, after) = value(after.trim_ascii_start())?;
        visit(name, value);
        match after.trim_ascii_start() {
            [b',', after @ ..] => rest = after.trim_ascii_start(),
            b"}" => return Ok(()),
            _ => return Err(bad),
        }
    }
}

/// Splits a text after its opening quote into its content and what follows it.
fn string(text: &[u8]) -> Result<(&[u8], &[u8]), LineError> {
    let mut from = 0;
    loop {
        match memchr2(b'"', b'\\', &text[from..]).map(|at| from + at) {
            Some(at) if text[at] == b'"' => return Ok((&text[..at], &text[at + 1..])),
            Some(at) if at + 1 < text.len() => from = at + 2,
            _ => return Err(LineError::NotJson),
        }
    }
}

fn value(text: &[u8]) -> Result<(Written<'_>, &[u8]), LineError> {
    match text {
        [b'"', rest @ ..] => string(rest).map(|(content, rest)| (Written::Text(content), rest)),
        [b'{' | b'[', ..] => {
            let end = nested_end(text)?;
            Ok((Written::Nested(&text[..end]), &text[end..]))
        }
        _ => {
            let is_end =
                |byte: &u8| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace();
            let end = text.iter().position(is_end).unwrap_or(text.len());
            if end == 0 {
                return Err(LineError::NotJson);
            }
            Ok((Written::Bare(&text[..end]), &text[end..]))
        }
    }
}

/// Returns where an object or an array ends. Counts brackets outside strings.
fn nested_end(text: &[u8]) -> Result<usize, LineError> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at);
                }
            }
            b'"' => at = text.len() - string(&text[at..])?.1.len(),
            _ => {}
        }
    }
    Err(LineError::NotJson)
}

/// Writes a string without its escapes. A wrong escape stays as it is.
fn unescape(text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some((&escape, after)) = rest.split_first() else {
            out.push(byte);
            return;
        };
        let plain = match escape {
            b'"' | b'\\' | b'/' => escape,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            _ => {
                let unicode = (escape == b'u').then(|| code_point(after)).flatten();
                match unicode {
                    Some((char, length)) => {
                        out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                        rest = &after[length..];
                    }
                    None => out.push(byte),
                }
                continue;
            }
        };
        out.push(plain);
        rest = after;
    }
}

/// Reads the digits behind `\u`, and a second escape if it is the other half of a pair. Returns the
/// character and the length.
fn code_point(text: &[u8]) -> Option<(char, usize)> {
    let unit = |text: &[u8]| {
        let digits = text.get(..4)?;
        let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().filter(|_| is_hex)
    };
    let first = unit(text)?;
    if let Some(char) = char::from_u32(first) {
        return Some((char, 4));
    }
    let second = unit(text.get(4..)?.strip_prefix(b"\\u")?)?;
    if first >= 0xDC00 || !(0xDC00..0xE000).contains(&second) {
        return None;
    }
    Some((char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00))?, 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str, names: [Option<&str>; 3]) -> Result<(u64, String, u64), LineError> {
        let mut parser = JsonParser::new(FieldNames::new(names[0], names[1], names[2]));
        let event = parser.parse(line.as_bytes())?;
        Ok((event.time / 1_000_000, String::from_utf8(event.key.to_vec()).unwrap(), event.cost))
    }

    #[test]
    fn usual_and_given_fields() {
        let usual = |line| parse(line, [None; 3]).unwrap();
        assert_eq!(usual(r#"{"time":5,"key":"a","cost":3}"#), (5_000, "a".into(), 3));
        assert_eq!(usual(r#" { "ts" : 5.25 , "client_ip" : "::1" } "#), (5_250, "::1".into(), 1));
        assert_eq!(
            usual(r#"{"user":"u","ip":"i","client":"c","timestamp":"1970-01-01T00:00:01Z"}"#),
            (1_000, "c".into(), 1)
        );
        let nested =
            r#"{"ts":7,"x":[{"key":"no"},"}]\""],"request":{"client_ip":"::2","headers":{}}}"#;
        assert_eq!(usual(nested), (7_000, "::2".into(), 1));
        assert_eq!(usual(r#"{"time":1,"key":12,"cost":null}"#), (1_000, "12".into(), 1));
        let given = [Some("t"), Some("a.b.c"), Some("n")];
        assert_eq!(
            parse(r#"{"t":1,"a":{"b":{"c":"x"}},"n":"8","time":2}"#, given),
            Ok((1_000, "x".into(), 8))
        );
        assert_eq!(parse(r#"{"t":1,"a.b.c":"x","n":0}"#, given), Ok((1_000, "x".into(), 0)));
    }

    #[test]
    fn escapes_in_keys() {
        let line = r#"{"time":1,"key":"a\"\\\/\u00e9\n\ud83d\ude00\ud83dx"}"#;
        assert_eq!(parse(line, [None; 3]).unwrap().1, "a\"\\/é\n😀\\ud83dx");
    }

    #[test]
    fn the_last_of_equal_names_counts() {
        let line = r#"{"time":1,"key":"a","time":2,"key":"b"}"#;
        assert_eq!(parse(line, [None; 3]), Ok((2_000, "b".into(), 1)));
    }

    #[test]
    fn other_lines_are_errors() {
        for (line, error) in [
            ("", LineError::NotJson),
            ("[1]", LineError::NotJson),
            (r#"{"time":1,"key":"a""#, LineError::NotJson),
            (r#"{"time":1,"key":"a"} x"#, LineError::NotJson),
            (r#"{"time":1 "key":"a"}"#, LineError::NotJson),
            (r#"{"time":,"key":"a"}"#, LineError::NotJson),
            (r#"{"time":1,"key":"a\"}"#, LineError::NotJson),
            (r#"{"key":"a"}"#, LineError::Missing("time")),
            ("{}", LineError::Missing("time")),
            (r#"{"time":1}"#, LineError::Missing("key")),
            (r#"{"time":1,"key":null}"#, LineError::Missing("key")),
            (r#"{"time":1,"key":["a"]}"#, LineError::KeyKind),
            (r#"{"time":{},"key":"a"}"#, LineError::Time),
            (r#"{"time":true,"key":"a"}"#, LineError::Time),
            (r#"{"time":1,"key":"a","cost":-1}"#, LineError::Cost),
            (r#"{"time":1,"key":"a","cost":1.5}"#, LineError::Cost),
        ] {
            assert_eq!(parse(line, [None; 3]), Err(error), "{line}");
        }
    }
}
