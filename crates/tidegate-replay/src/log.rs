//! Reading logs: recognizes the format, reads lines, numbers keys, and counts what went wrong.
//!
//! It reads a stream once, from front to back, and keeps keys but no lines. It opens no files.

mod access;
mod csv;
mod fields;
mod json;
pub(crate) mod line_error;
mod lines;
mod recognize;
mod summary;
pub(crate) mod timestamp;

use std::io::{self, BufReader, Read};

use flate2::read::MultiGzDecoder;
use tidegate_core::Time;

use crate::error::ReplayError;
use crate::event::{Event, EventSink};
use crate::key_table::KeyTable;
use crate::log::lines::{Line, LineReader};

pub use crate::log::recognize::LogFormat;
pub use crate::log::summary::{InvalidLine, LogSummary};

/// First bytes of a gzip stream.
const GZIP: [u8; 2] = [0x1F, 0x8B];
/// Number of invalid lines that are reported one by one.
const REPORTED: usize = 5;

/// What a line says, before its key has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawEvent<'l> {
    pub(crate) key: &'l [u8],
    /// Nanoseconds since the Unix epoch.
    pub(crate) time: u64,
    pub(crate) cost: u64,
}

/// How to read logs.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// The format; recognized from the first lines of each log if unset.
    pub format: Option<LogFormat>,
    /// Name of the field of the time, in JSON and CSV.
    pub time_field: Option<String>,
    /// What the key is: a part of an access log line, or the name of a field.
    pub key: Option<String>,
    /// Name of the field of the cost.
    pub cost_field: Option<String>,
}

/// Reads logs, one after the other.
#[derive(Debug)]
pub struct LogReader {
    options: LogOptions,
    keys: KeyTable,
    summary: LogSummary,
}

impl LogReader {
    /// Creates a reader that has read nothing.
    #[must_use]
    pub fn new(options: LogOptions) -> Self {
        Self { options, keys: KeyTable::default(), summary: LogSummary::default() }
    }

    /// Reads a log to its end. It may be compressed with gzip. `name` is for messages.
    ///
    /// # Errors
    /// If the log cannot be read, its format is not recognized or does not fit the options, there
    /// are too many keys, or the sink fails. A line that cannot be read is counted only.
    pub fn read(
        &mut self,
        name: &str,
        source: impl Read,
        sink: &mut impl EventSink,
    ) -> Result<(), ReplayError> {
        let failed = |error| ReplayError::Read { log: name.to_owned(), error };
        let mut start = Vec::with_capacity(GZIP.len());
        let mut source = source;
        source.by_ref().take(GZIP.len() as u64).read_to_end(&mut start).map_err(failed)?;
        let is_gzip = start == GZIP;
        let source = io::Cursor::new(start).chain(source);
        if is_gzip {
            self.read_lines(name, MultiGzDecoder::new(BufReader::new(source)), sink)
        } else {
            self.read_lines(name, source, sink)
        }
    }

    fn read_lines(
        &mut self,
        name: &str,
        source: impl Read,
        sink: &mut impl EventSink,
    ) -> Result<(), ReplayError> {
        let failed = |error| ReplayError::Read { log: name.to_owned(), error };
        let mut lines = LineReader::new(source);
        let preview = lines.preview().map_err(failed)?;
        let mark = if preview.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
        let Some((mut parser, has_header)) =
            recognize::parser(name, &preview[mark..], &self.options)?
        else {
            return Ok(());
        };
        lines.skip(mark);
        let (mut number, mut is_header) = (0, has_header);
        while let Some(line) = lines.next_line().map_err(failed)? {
            number += 1;
            let parsed = match line {
                Line::Complete(line) if line.trim_ascii().is_empty() => continue,
                Line::Complete(_) if std::mem::take(&mut is_header) => continue,
                Line::Complete(line) => parser.parse(line),
                Line::TooLong => Err(line_error::LineError::TooLong),
            };
            self.summary.lines += 1;
            match parsed {
                Ok(raw) => {
                    let key = self.keys.number(raw.key).ok_or(ReplayError::TooManyKeys)?;
                    let event = Event { key, time: Time::from_nanos(raw.time), cost: raw.cost };
                    self.summary.count(event);
                    sink.event(event).map_err(ReplayError::Spool)?;
                }
                Err(error) => self.summary.count_invalid(name, number, error),
            }
        }
        Ok(())
    }

    /// Returns the keys and the summary of all logs.
    ///
    /// # Errors
    /// If there was no line, or more than half of the lines could not be read.
    pub fn finish(self) -> Result<(KeyTable, LogSummary), ReplayError> {
        self.summary.check()?;
        Ok((self.keys, self.summary))
    }

    /// Returns what has been read so far.
    #[must_use]
    pub fn summary(&self) -> &LogSummary {
        &self.summary
    }
}

/// Reads a whole number; zeros behind a point do not matter.
pub(crate) fn whole_number(text: &[u8]) -> Option<u64> {
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b"0"[..]),
    };
    if whole.is_empty() || fraction.is_empty() || fraction.iter().any(|&byte| byte != b'0') {
        return None;
    }
    whole.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// Parses one line in a format, for fuzzing: any bytes are accepted. Returns key, nanoseconds since
/// the Unix epoch and cost, or the text of the error.
///
/// # Errors
/// If the line cannot be read.
#[doc(hidden)]
pub fn parse_line(
    format: LogFormat,
    options: &LogOptions,
    line: &[u8],
) -> Result<(Vec<u8>, u64, u64), String> {
    let options = LogOptions { format: Some(format), ..options.clone() };
    let parser = recognize::parser("fuzzed", line, &options).map_err(|error| error.to_string())?;
    let (mut parser, _) = parser.ok_or("is empty")?;
    let raw = parser.parse(line).map_err(|error| error.to_string())?;
    Ok((raw.key.to_vec(), raw.time, raw.cost))
}
