//! Recognizes the format of a log from its first lines, and applies the options to it.

use crate::error::ReplayError;
use crate::log::access::{AccessCost, AccessKey, AccessParser};
use crate::log::csv::{Columns, CsvParser};
use crate::log::fields::FieldNames;
use crate::log::json::JsonParser;
use crate::log::line_error::LineError;
use crate::log::{LogOptions, RawEvent};

/// Number of lines that are looked at.
const LOOKED_AT: usize = 20;

/// Format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The common or combined format of nginx and Apache.
    Combined,
    /// One JSON object per line.
    Json,
    /// Comma-separated values.
    Csv,
}

/// Reads lines of one format.
#[derive(Clone, Debug)]
pub(crate) enum LineParser {
    Access(AccessParser),
    Json(JsonParser),
    Csv(CsvParser),
}

impl LineParser {
    #[inline]
    pub(crate) fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<RawEvent<'a>, LineError> {
        match self {
            Self::Access(parser) => parser.parse(line),
            Self::Json(parser) => parser.parse(line),
            Self::Csv(parser) => parser.parse(line),
        }
    }
}

/// Creates the parser for a log that starts with `preview`, and says whether its first line is a
/// header. `None` if the log is empty.
pub(crate) fn parser(
    name: &str,
    preview: &[u8],
    options: &LogOptions,
) -> Result<Option<(LineParser, bool)>, ReplayError> {
    let lines = preview.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let mut lines = lines.filter(|line| !line.is_empty());
    let Some(first) = lines.clone().next() else { return Ok(None) };
    let (format, telling) = match options.format {
        Some(format) => (format, first),
        None => lines
            .by_ref()
            .take(LOOKED_AT)
            .enumerate()
            .find_map(|(index, line)| Some((format_of(line, index == 0)?, line)))
            .ok_or_else(|| ReplayError::UnknownFormat(name.to_owned()))?,
    };
    let names = FieldNames::new(
        options.time_field.as_deref(),
        options.key.as_deref(),
        options.cost_field.as_deref(),
    );
    match format {
        LogFormat::Combined => {
            access(name, options).map(|parser| Some((LineParser::Access(parser), false)))
        }
        LogFormat::Json => Ok(Some((LineParser::Json(JsonParser::new(names)), false))),
        LogFormat::Csv => {
            let is_named = [&options.time_field, &options.key, &options.cost_field];
            let columns = Columns::of(telling, &names, is_named.map(Option::is_some));
            let (columns, is_header) = columns.map_err(|missing| ReplayError::Column {
                log: name.to_owned(),
                what: missing.what,
                columns: missing.columns,
                option: missing.option,
            })?;
            Ok(Some((LineParser::Csv(CsvParser::new(columns)), is_header)))
        }
    }
}

/// Returns the format of which this could be a line. A header of a CSV log can only be the first
/// line.
fn format_of(line: &[u8], is_first: bool) -> Option<LogFormat> {
    let names = FieldNames::new(None, None, None);
    if line.starts_with(b"{") {
        Some(LogFormat::Json)
    } else if AccessParser::new(AccessKey::Address, AccessCost::Request).parse(line).is_ok() {
        Some(LogFormat::Combined)
    } else if Columns::of(line, &names, [false; 3]).is_ok_and(|(_, header)| is_first || !header)
        || is_first && has_several_names(line)
    {
        Some(LogFormat::Csv)
    } else {
        None
    }
}

/// Returns whether a line looks like a header with names that are not known: then the error about
/// it names them.
fn has_several_names(line: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.@\" ".contains(byte);
    let names = line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    line.contains(&b',') && names.clone().all(|name| !name.is_empty() && name.iter().all(is_name))
}

fn access(name: &str, options: &LogOptions) -> Result<AccessParser, ReplayError> {
    if options.time_field.is_some() {
        return Err(ReplayError::AccessTime(name.to_owned()));
    }
    let key = match &options.key {
        None => AccessKey::Address,
        Some(key) => AccessKey::named(key)
            .ok_or_else(|| ReplayError::AccessKey { log: name.to_owned(), key: key.clone() })?,
    };
    let cost = match options.cost_field.as_deref() {
        None => AccessCost::Request,
        Some("bytes") => AccessCost::Bytes,
        Some(field) => {
            let (log, field) = (name.to_owned(), field.to_owned());
            return Err(ReplayError::AccessCost { log, field });
        }
    };
    Ok(AccessParser::new(key, cost))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognized(text: &str) -> Result<Option<LogFormat>, ReplayError> {
        let parser = parser("x.log", text.as_bytes(), &LogOptions::default())?;
        Ok(parser.map(|(parser, _)| match parser {
            LineParser::Access(_) => LogFormat::Combined,
            LineParser::Json(_) => LogFormat::Json,
            LineParser::Csv(_) => LogFormat::Csv,
        }))
    }

    #[test]
    fn formats_are_recognized_by_their_content() {
        let access = "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET /a,b HTTP/1.1\" 200 1\n";
        for (text, format) in [
            (access, LogFormat::Combined),
            ("{\"time\":1}", LogFormat::Json),
            ("\n\ntime,key\n5,a\n", LogFormat::Csv),
            ("5,a\n", LogFormat::Csv),
            ("2024-01-01T00:00:00Z,a,3", LogFormat::Csv),
        ] {
            assert_eq!(recognized(text).unwrap(), Some(format), "{text}");
            let after_junk = format!("--- rotated ---\n{text}");
            let found = recognized(&after_junk);
            match text.contains("time,key") {
                false => assert_eq!(found.unwrap(), Some(format), "{text}"),
                true => assert_eq!(found.unwrap(), Some(LogFormat::Csv)),
            }
        }
        assert_eq!(recognized("\n \n").unwrap(), None);
        assert!(matches!(recognized("hello\nworld"), Err(ReplayError::UnknownFormat(_))));
        assert!(matches!(recognized("when,who\n5,a"), Err(ReplayError::Column { .. })));
    }

    #[test]
    fn options_that_do_not_fit_an_access_log_are_errors() {
        let error = |options: LogOptions| {
            let options = LogOptions { format: Some(LogFormat::Combined), ..options };
            parser("x.log", b"x", &options).unwrap_err().to_string()
        };
        let some = |text: &str| Some(text.to_owned());
        let key = LogOptions { key: some("ip"), ..LogOptions::default() };
        assert!(error(key).contains("use address, user, path or method"));
        let cost = LogOptions { cost_field: some("n"), ..LogOptions::default() };
        assert!(error(cost).contains("use bytes"));
        let time = LogOptions { time_field: some("t"), ..LogOptions::default() };
        assert!(error(time).contains("remove --time-field"));
    }
}
