//! Answers that come in pieces.
//!
//! A [`Decoder`] takes bytes as they come and gives events, the same however the bytes are cut. The
//! reason to stop is always its last event. A stream that ends without saying that it is over is an
//! error: half an answer is not a short one.

use std::fmt;

use super::error::DecodeError;
use super::lines::Lines;
use super::sse;
use crate::dialect::{Dialect, Family, Progress, Reader};
use crate::reply::Event;

/// The most bytes of one event, and of an answer that is no stream where one was asked for: 16 MiB.
pub(super) const MAX_EVENT: usize = 16 * 1_024 * 1_024;

/// What OpenAI's streams end with.
const DONE: &[u8] = b"[DONE]";

/// Reads one stream.
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
    /// Whether something could not be read. What follows it means nothing.
    is_spoilt: bool,
}

/// What the lines are made into.
struct Records {
    framing: Framing,
    reader: Box<dyn Reader>,
    is_over: bool,
    /// Whether anything was read.
    has_begun: bool,
    unreadable: Unreadable,
}

/// What becomes of a record that is no JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unreadable {
    Refused,
    PassedOver,
}

/// What lines are.
#[derive(Debug)]
enum Framing {
    /// Not known yet: events, unless the first line says that it is JSON.
    Unknown,
    /// Lines of events.
    Events(sse::Events),
    /// One object each.
    Objects,
    /// Parts of one object, or of a list of them: the provider did not stream, or failed.
    Whole(Vec<u8>),
}

impl Decoder {
    /// A decoder of one stream.
    #[must_use]
    pub fn new(dialect: Dialect) -> Self {
        Self::with(dialect, Unreadable::Refused)
    }

    /// A decoder that passes over events that are no JSON, for those who pass the bytes on and only
    /// want to know what they can.
    #[must_use]
    pub fn lenient(dialect: Dialect) -> Self {
        Self::with(dialect, Unreadable::PassedOver)
    }

    fn with(dialect: Dialect, unreadable: Unreadable) -> Self {
        let family = Family::of(dialect);
        let framing = match family {
            Family::Ollama => Framing::Objects,
            Family::OpenAi | Family::Anthropic | Family::Gemini => Framing::Unknown,
        };
        let (reader, is_over, has_begun) = (family.reader(), false, false);
        let records = Records { framing, reader, is_over, has_begun, unreadable };
        Self { lines: Lines::default(), records, is_spoilt: false }
    }

    /// Takes some bytes, and adds the events that they complete.
    ///
    /// # Errors
    ///
    /// If they cannot be read, or if the provider reports an error. Events that came before are
    /// added. After an error nothing more is read, and every call fails.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), DecodeError> {
        self.unless_spoilt(|Self { lines, records, .. }| {
            lines.feed(bytes, |line| records.line(line, events))
        })
    }

    /// The bytes have ended as they should.
    ///
    /// # Errors
    ///
    /// If the answer has not, or if something before could not be read.
    pub fn end(&mut self, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        self.unless_spoilt(|decoder| decoder.finish(events))
    }

    /// Whether the answer has said that nothing more comes. Bytes that come nevertheless are passed
    /// over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.records.is_over
    }

    /// Whether a first event was read.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.records.has_begun
    }

    /// Reads on, unless there is nothing more to be read. An error is remembered.
    fn unless_spoilt(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if self.is_spoilt {
            return Err(DecodeError::Spoilt);
        }
        if self.is_over() {
            return Ok(());
        }
        let done = read(self);
        self.is_spoilt = done.is_err();
        done
    }

    fn finish(&mut self, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        let Self { lines, records, .. } = self;
        let rest = lines.end(|line| records.line(line, events)).and_then(|()| records.end(events));
        match rest {
            // What stands at the end and is no JSON is the half of something.
            Err(DecodeError::Json(_)) => return Err(DecodeError::Cut),
            rest => rest?,
        }
        match records.reader.state().progress {
            Progress::Open if !records.is_over => Err(DecodeError::Cut),
            Progress::Open | Progress::Complete | Progress::Over => {
                records.close(events);
                Ok(())
            }
        }
    }
}

impl Records {
    fn line(&mut self, line: &[u8], events: &mut Vec<Event>) -> Result<(), DecodeError> {
        if self.is_over {
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
        if self.is_over {
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
            Framing::Events(framed) => framed.line(line, |data| self.piece(data, events))?,
            Framing::Objects => self.piece(line, events)?,
            Framing::Whole(body) => {
                if body.len() + line.len() >= MAX_EVENT {
                    return Err(DecodeError::TooLong { limit: MAX_EVENT });
                }
                body.extend_from_slice(line);
                body.push(b'\n');
            }
        }
        Ok(())
    }

    /// What is left when the last line was read.
    fn end(&mut self, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        match std::mem::replace(&mut self.framing, Framing::Objects) {
            Framing::Events(mut framed) => framed.end(|data| self.piece(data, events)),
            Framing::Whole(body) => {
                self.is_over = true;
                self.reader.read_whole(&serde_json::from_slice(&body)?, events)
            }
            Framing::Unknown | Framing::Objects => Ok(()),
        }
    }

    fn close(&mut self, events: &mut Vec<Event>) {
        self.is_over = true;
        events.extend(self.reader.take_stop().map(Event::Stop));
    }

    /// Reads the data of one event, or one line.
    fn piece(&mut self, data: &[u8], events: &mut Vec<Event>) -> Result<(), DecodeError> {
        let data = data.trim_ascii();
        if data.is_empty() {
            return Ok(());
        }
        self.has_begun = true;
        if data == DONE {
            self.is_over = true;
            return Ok(());
        }
        let record = match serde_json::from_slice(data) {
            Err(_) if self.unreadable == Unreadable::PassedOver => return Ok(()),
            record => record?,
        };
        self.reader.read(&record, events)?;
        self.is_over = self.reader.state().progress == Progress::Over;
        Ok(())
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}
