//! Decoder for streamed responses.
//!
//! A [`Decoder`] turns bytes into events; the events do not depend on how the bytes are split. The
//! stop reason is always the last event. A stream that ends without its end marker is an error, so
//! that a truncated response is not taken for a short one.

use std::fmt;

use super::error::DecodeError;
use super::lines::Lines;
use super::sse;
use crate::dialect::{Dialect, Family, Progress, Reader};
use crate::reply::Event;

/// Maximum size of one event, and of a response that is not streamed although requested: 16 MiB.
pub(super) const MAX_EVENT: usize = 16 * 1_024 * 1_024;

/// End marker of OpenAI's streams.
const DONE: &[u8] = b"[DONE]";

/// Decodes one stream.
///
/// ```
/// use tidegate_providers::response::Decoder;
/// use tidegate_providers::{Dialect, Event, StopReason};
/// let mut decoder = Decoder::new(Dialect::Ollama);
/// let mut events = Vec::new();
/// decoder.feed(br#"{"message":{"content":"El"#, &mut events)?;
/// assert!(events.is_empty());
/// decoder.feed(b"be\"},\"done\":true,\"done_reason\":\"stop\"}\n", &mut events)?;
/// decoder.end(&mut events)?;
/// assert_eq!(events, [Event::Text("Elbe".into()), Event::Stop(StopReason::End)]);
/// # Ok::<(), tidegate_providers::response::DecodeError>(())
/// ```
pub struct Decoder {
    lines: Lines,
    records: Records,
    /// Whether decoding failed. The rest of the stream has no meaning then.
    has_failed: bool,
}

/// Turns lines into events.
struct Records {
    framing: Framing,
    reader: Box<dyn Reader>,
    is_finished: bool,
    /// Whether a record was read.
    has_begun: bool,
    invalid_json: InvalidJson,
}

/// What to do with a record that is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvalidJson {
    Reject,
    Skip,
}

/// How lines form records.
#[derive(Debug)]
enum Framing {
    /// Not known yet: events, unless the first line begins like JSON.
    Unknown,
    /// Lines of server-sent events.
    Events(sse::Events),
    /// One JSON object per line.
    Objects,
    /// One object, or a list of objects, over several lines: the provider did not stream, or
    /// failed.
    Whole(Vec<u8>),
}

impl Decoder {
    /// Creates a decoder for one stream.
    #[must_use]
    pub fn new(dialect: Dialect) -> Self {
        Self::with(dialect, InvalidJson::Reject)
    }

    /// Creates a decoder that skips events that are not JSON, for proxies that forward the bytes
    /// and extract what they can.
    #[must_use]
    pub fn lenient(dialect: Dialect) -> Self {
        Self::with(dialect, InvalidJson::Skip)
    }

    fn with(dialect: Dialect, invalid_json: InvalidJson) -> Self {
        let family = Family::of(dialect);
        let framing = match family {
            Family::Ollama => Framing::Objects,
            Family::OpenAi | Family::Anthropic | Family::Gemini => Framing::Unknown,
        };
        let (reader, is_finished, has_begun) = (family.reader(), false, false);
        let records = Records { framing, reader, is_finished, has_begun, invalid_json };
        Self { lines: Lines::default(), records, has_failed: false }
    }

    /// Decodes bytes and appends the events that they complete.
    ///
    /// # Errors
    ///
    /// Fails if the bytes cannot be decoded, or if the provider reports an error. Events before the
    /// error are appended. After an error, every call fails.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), DecodeError> {
        self.unless_failed(|Self { lines, records, .. }| {
            lines.feed(bytes, |line| records.line(line, events))
        })
    }

    /// Finishes the stream after its last byte.
    ///
    /// # Errors
    ///
    /// Fails if the response is not complete, or if an earlier part could not be decoded.
    pub fn end(&mut self, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        self.unless_failed(|decoder| decoder.finish(events))
    }

    /// Returns whether the stream has sent its end marker. Bytes after it are ignored.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.records.is_finished
    }

    /// Returns whether a first event was read.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.records.has_begun
    }

    /// Calls `read` unless the stream is over or has failed, and records a failure.
    fn unless_failed(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if self.has_failed {
            return Err(DecodeError::AfterError);
        }
        if self.is_finished() {
            return Ok(());
        }
        let done = read(self);
        self.has_failed = done.is_err();
        done
    }

    fn finish(&mut self, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        let Self { lines, records, .. } = self;
        let rest = lines.end(|line| records.line(line, events)).and_then(|()| records.end(events));
        match rest {
            // Invalid JSON at the end is a truncated record.
            Err(DecodeError::Json(_)) => return Err(DecodeError::Truncated),
            rest => rest?,
        }
        match records.reader.state().progress {
            Progress::Open if !records.is_finished => Err(DecodeError::Truncated),
            Progress::Open | Progress::Complete | Progress::Over => {
                records.close(events);
                Ok(())
            }
        }
    }
}

impl Records {
    fn line(&mut self, line: &[u8], events: &mut Vec<Event>) -> Result<(), DecodeError> {
        if self.is_finished {
            return Ok(());
        }
        if matches!(self.framing, Framing::Unknown) && !line.is_empty() {
            self.framing = match line.trim_ascii_start().first() {
                Some(b'{' | b'[') => Framing::Whole(Vec::new()),
                _ => Framing::Events(sse::Events::default()),
            };
        }
        let mut framing = std::mem::replace(&mut self.framing, Framing::Objects);
        let read = self.framed_line(&mut framing, line, events);
        self.framing = framing;
        read?;
        if self.is_finished {
            self.close(events);
        }
        Ok(())
    }

    fn framed_line(
        &mut self,
        framing: &mut Framing,
        line: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), DecodeError> {
        match framing {
            Framing::Unknown => {}
            Framing::Events(framed) => framed.line(line, |data| self.record(data, events))?,
            Framing::Objects => self.record(line, events)?,
            Framing::Whole(body) => {
                if body.len() + line.len() >= MAX_EVENT {
                    return Err(DecodeError::TooLarge { limit: MAX_EVENT });
                }
                body.extend_from_slice(line);
                body.push(b'\n');
            }
        }
        Ok(())
    }

    /// Processes what is buffered after the last line.
    fn end(&mut self, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        match std::mem::replace(&mut self.framing, Framing::Objects) {
            Framing::Events(mut framed) => framed.end(|data| self.record(data, events)),
            Framing::Whole(body) => {
                self.is_finished = true;
                self.reader.read_whole(&serde_json::from_slice(&body)?, events)
            }
            Framing::Unknown | Framing::Objects => Ok(()),
        }
    }

    fn close(&mut self, events: &mut Vec<Event>) {
        self.is_finished = true;
        events.extend(self.reader.take_stop().map(Event::Stop));
    }

    /// Reads one record: the data of an event, or a line.
    fn record(&mut self, data: &[u8], events: &mut Vec<Event>) -> Result<(), DecodeError> {
        let data = data.trim_ascii();
        if data.is_empty() {
            return Ok(());
        }
        self.has_begun = true;
        if data == DONE {
            self.is_finished = true;
            return Ok(());
        }
        let record = match serde_json::from_slice(data) {
            Err(_) if self.invalid_json == InvalidJson::Skip => return Ok(()),
            record => record?,
        };
        self.reader.read(&record, events)?;
        self.is_finished = self.reader.state().progress == Progress::Over;
        Ok(())
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}
