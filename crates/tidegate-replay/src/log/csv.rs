//! Comma-separated logs, with or without a header. A field with a line break is not supported.

use crate::log::fields::FieldNames;
use crate::log::line_error::LineError;
use crate::log::{RawEvent, timestamp, whole_number};

/// Columns of time, key and cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    time: usize,
    key: usize,
    cost: Option<usize>,
    /// Whether the cost may be left out, because the log has no header that promises it.
    is_cost_optional: bool,
}

/// Why a header does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingColumn {
    pub(crate) what: &'static str,
    pub(crate) option: &'static str,
    pub(crate) columns: String,
}

impl Columns {
    /// Time, key and cost in this order, as in a log without a header.
    const PLAIN: Self = Self { time: 0, key: 1, cost: Some(2), is_cost_optional: true };

    /// Finds the columns from the first line. Returns them and whether the line is a header.
    pub(crate) fn of(
        first: &[u8],
        names: &FieldNames,
        is_named: [bool; 3],
    ) -> Result<(Self, bool), MissingColumn> {
        let header = split(first);
        let first_is_time = header.first().is_some_and(|text| timestamp::parse(text).is_ok());
        if first_is_time && header.len() > 1 && is_named == [false; 3] {
            return Ok((Self::PLAIN, false));
        }
        let column = |names: &[String]| {
            let wanted = |name: &String| {
                header.iter().position(|column| column.eq_ignore_ascii_case(name.as_bytes()))
            };
            names.iter().find_map(wanted)
        };
        let missing = |what, option| MissingColumn {
            what,
            option,
            columns: header
                .iter()
                .map(|name| String::from_utf8_lossy(name).escape_debug().to_string())
                .collect::<Vec<_>>()
                .join(", "),
        };
        let [time, key, cost] = names.names.each_ref().map(|names| column(names));
        if is_named[2] && cost.is_none() {
            return Err(missing("cost", "--cost-field"));
        }
        let columns = Self {
            time: time.ok_or_else(|| missing("time", "--time-field"))?,
            key: key.ok_or_else(|| missing("key", "--key"))?,
            cost,
            is_cost_optional: false,
        };
        Ok((columns, true))
    }
}

/// Reads lines of CSV logs.
#[derive(Clone, Debug)]
pub(crate) struct CsvParser {
    columns: Columns,
    /// The key without its quotes.
    unquoted: Vec<u8>,
}

impl CsvParser {
    pub(crate) fn new(columns: Columns) -> Self {
        Self { columns, unquoted: Vec::new() }
    }

    pub(crate) fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<RawEvent<'a>, LineError> {
        let Columns { time, key, cost, is_cost_optional } = self.columns;
        let (mut time_text, mut key_text, mut cost_text) = (None, None, None);
        let (mut rest, mut index) = (Some(line), 0);
        while let Some(text) = rest {
            let (field, after) = field(text)?;
            // One column may be both, such as a key that is also a cost.
            for (column, found) in
                [(Some(time), &mut time_text), (Some(key), &mut key_text), (cost, &mut cost_text)]
            {
                if column == Some(index) {
                    *found = Some(field);
                }
            }
            (rest, index) = (after, index + 1);
        }
        let time = timestamp::parse(content(time_text.ok_or(LineError::Missing("time"))?))?;
        let cost = match cost_text {
            Some(text) => whole_number(content(text).trim_ascii()).ok_or(LineError::Cost)?,
            None if cost.is_none() || is_cost_optional => 1,
            None => return Err(LineError::Missing("cost")),
        };
        let key = match key_text.ok_or(LineError::Missing("key"))? {
            Field::Plain(text) => text.trim_ascii(),
            Field::Quoted(text) => {
                unquote(text, &mut self.unquoted);
                &self.unquoted
            }
        };
        Ok(RawEvent { key, time, cost })
    }
}

#[derive(Clone, Copy)]
enum Field<'l> {
    Plain(&'l [u8]),
    /// The text between the quotes, in which a quote is doubled.
    Quoted(&'l [u8]),
}

/// Returns the text of a field; doubled quotes in it stay.
fn content(field: Field<'_>) -> &[u8] {
    let (Field::Plain(text) | Field::Quoted(text)) = field;
    text
}

/// Splits off a field. What follows is `None` after the last one.
fn field(text: &[u8]) -> Result<(Field<'_>, Option<&[u8]>), LineError> {
    let trimmed = text.trim_ascii_start();
    let Some(quoted) = trimmed.strip_prefix(b"\"") else {
        return Ok(match memchr::memchr(b',', text) {
            Some(at) => (Field::Plain(&text[..at]), Some(&text[at + 1..])),
            None => (Field::Plain(text), None),
        });
    };
    let mut from = 0;
    loop {
        let at = from + memchr::memchr(b'"', &quoted[from..]).ok_or(LineError::OpenField)?;
        if quoted.get(at + 1) == Some(&b'"') {
            from = at + 2;
            continue;
        }
        let after = quoted[at + 1..].trim_ascii_start();
        return match after {
            [] => Ok((Field::Quoted(&quoted[..at]), None)),
            [b',', after @ ..] => Ok((Field::Quoted(&quoted[..at]), Some(after))),
            _ => Err(LineError::OpenField),
        };
    }
}

fn unquote(text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'"', rest) {
        out.extend_from_slice(&rest[..=at]);
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

/// Splits a header. A field that does not end is left out.
fn split(line: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut fields) = (Some(line), Vec::new());
    while let Some(Ok((field, after))) = rest.map(field) {
        fields.push(content(field).trim_ascii());
        rest = after;
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(first: &str, named: [Option<&str>; 3]) -> Result<(Columns, bool), MissingColumn> {
        let names = FieldNames::new(named[0], named[1], named[2]);
        Columns::of(first.as_bytes(), &names, named.map(|name| name.is_some()))
    }

    fn parse(first: &str, line: &str) -> Result<(u64, String, u64), LineError> {
        let mut parser = CsvParser::new(columns(first, [None; 3]).unwrap().0);
        let event = parser.parse(line.as_bytes())?;
        let key = String::from_utf8(event.key.to_vec()).unwrap();
        Ok((event.time / 1_000_000_000, key, event.cost))
    }

    #[test]
    fn with_and_without_a_header() {
        assert_eq!(columns("1700000000,a,5", [None; 3]), Ok((Columns::PLAIN, false)));
        assert_eq!(parse("5,a", "6,b"), Ok((6, "b".into(), 1)));
        assert_eq!(parse("5,a", "6,b,7"), Ok((6, "b".into(), 7)));
        assert_eq!(parse("Cost, IP ,\"Time\"", "3, ::1 ,6"), Ok((6, "::1".into(), 3)));
        assert_eq!(parse("time,key,x", "6,\"a,\"\"b\"\"\",y"), Ok((6, "a,\"b\"".into(), 1)));
        assert_eq!(parse("time,key", "6,\"\""), Ok((6, String::new(), 1)));
    }

    #[test]
    fn missing_columns_are_named() {
        let missing = |first, named| columns(first, named).unwrap_err();
        let found = missing("when,key", [None; 3]);
        assert_eq!(
            (found.what, found.option, &*found.columns),
            ("time", "--time-field", "when, key")
        );
        assert_eq!(missing("time,who", [None; 3]).option, "--key");
        assert_eq!(missing("time,key", [None, None, Some("n")]).option, "--cost-field");
        // Named columns need a header.
        assert_eq!(missing("5,a", [None, Some("who"), None]).option, "--time-field");
    }

    #[test]
    fn other_lines_are_errors() {
        for (line, error) in [
            ("", LineError::Time),
            ("6", LineError::Missing("cost")),
            ("6,a", LineError::Missing("cost")),
            ("x,a,1", LineError::Time),
            ("6,a,", LineError::Cost),
            ("6,\"a,1", LineError::OpenField),
            ("6,\"a\"b,1", LineError::OpenField),
        ] {
            assert_eq!(parse("time,key,cost", line), Err(error), "{line}");
        }
        assert_eq!(parse("5,a", "6"), Err(LineError::Missing("key")));
    }
}
