//! Holds back the start of a stream until its first event is complete.
//!
//! If the first event is an error, the call can still be retried or sent to a fallback; after the
//! first forwarded byte it cannot. Providers send comments before the first event, and events may
//! be split anywhere. The hold is bounded in size and time.

use bytes::{Bytes, BytesMut};

/// Maximum number of bytes held back: 64 KiB.
const MAX_HELD: usize = 64 * 1_024;

/// The start of a stream.
#[derive(Debug, Default)]
pub(crate) struct FirstEvent {
    held: BytesMut,
    line: LineKind,
    /// Whether the current event has data.
    has_data: bool,
    /// Whether the last byte was a carriage return, which a line feed may follow.
    after_carriage_return: bool,
    has_event: bool,
}

/// The kind of the current line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LineKind {
    #[default]
    Empty,
    /// `data` field of a server-sent event.
    Data,
    /// JSON, which is an event by itself.
    Json,
    /// A comment or another field.
    Other,
}

impl FirstEvent {
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether the event is complete or the buffer is full.
    pub(crate) fn is_complete(&self) -> bool {
        self.has_event || self.held.len() >= MAX_HELD
    }

    /// Adds an encoded chunk, in which event boundaries cannot be detected.
    pub(crate) fn push_encoded(&mut self, chunk: &[u8]) {
        self.held.extend_from_slice(chunk);
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.push_encoded(chunk);
        for byte in chunk {
            let is_crlf = self.after_carriage_return && *byte == b'\n';
            self.after_carriage_return = *byte == b'\r';
            match byte {
                b'\n' if is_crlf => {}
                b'\n' | b'\r' => self.end_line(),
                _ if self.line != LineKind::Empty => {}
                b'd' => self.line = LineKind::Data,
                b'{' | b'[' => self.line = LineKind::Json,
                _ => self.line = LineKind::Other,
            }
        }
    }

    fn end_line(&mut self) {
        match std::mem::take(&mut self.line) {
            LineKind::Empty => self.has_event |= self.has_data,
            LineKind::Data => self.has_data = true,
            LineKind::Json => self.has_event = true,
            LineKind::Other => {}
        }
    }

    /// Returns the held bytes; `None` if there are none.
    pub(crate) fn into_bytes(self) -> Option<Bytes> {
        Some(self.held.freeze()).filter(|held| !held.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_complete(text: &str) -> bool {
        let mut first_event = FirstEvent::default();
        // Byte by byte, to cover every split.
        text.as_bytes().chunks(1).for_each(|chunk| first_event.push(chunk));
        first_event.is_complete()
    }

    #[test]
    fn an_event_is_complete_after_its_blank_line() {
        for incomplete in
            ["", "data: {}", "data: {}\n", "data: {}\r\n", ": hello\n\n", "event: a\n\n"]
        {
            assert!(!is_complete(incomplete), "{incomplete:?}");
        }
        for complete in
            ["data: {}\n\n", ": hi\n\nevent: a\r\ndata: {}\r\n\r\n", "data:\r\r", "{}\n"]
        {
            assert!(is_complete(complete), "{complete:?}");
        }
    }

    #[test]
    fn held_bytes_are_bounded() {
        assert!(!is_complete(&":".repeat(MAX_HELD - 1)));
        assert!(is_complete(&":".repeat(MAX_HELD)));
    }
}
