//! The beginning of a stream, which is held until one event of it is whole.
//!
//! Providers send comments while they are busy, and cut events wherever a packet ends. What is held
//! can still be an error, and then somebody else may be asked; what was handed out cannot be taken
//! back. So it is held, but neither for long nor much of it.

use bytes::{Bytes, BytesMut};

/// The most that is held: 64 KiB.
const MOST: usize = 64 * 1_024;

/// What has come of a stream.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    held: BytesMut,
    line: Line,
    /// Whether the event that has begun has data.
    has_data: bool,
    /// Whether the last byte was a carriage return, of which a line feed may be the second half.
    was_return: bool,
    has_event: bool,
}

/// What the line is that has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    #[default]
    Empty,
    /// Of an event of server-sent events.
    Data,
    /// Of JSON, which is an event by itself.
    Json,
    /// A comment, or a field that tells nothing.
    Other,
}

impl Opening {
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether there is nothing more to wait for.
    pub(crate) fn is_whole(&self) -> bool {
        self.has_event || self.held.len() >= MOST
    }

    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
        for byte in piece {
            let is_second_half = self.was_return && *byte == b'\n';
            self.was_return = *byte == b'\r';
            match byte {
                b'\n' if is_second_half => {}
                b'\n' | b'\r' => self.end_line(),
                _ if self.line != Line::Empty => {}
                b'd' => self.line = Line::Data,
                b'{' | b'[' => self.line = Line::Json,
                _ => self.line = Line::Other,
            }
        }
    }

    fn end_line(&mut self) {
        match std::mem::take(&mut self.line) {
            Line::Empty => self.has_event |= self.has_data,
            Line::Data => self.has_data = true,
            Line::Json => self.has_event = true,
            Line::Other => {}
        }
    }

    /// All that has come; `None` if nothing has.
    pub(crate) fn into_bytes(self) -> Option<Bytes> {
        Some(self.held.freeze()).filter(|held| !held.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_whole(text: &str) -> bool {
        let mut opening = Opening::default();
        // However it is cut.
        text.as_bytes().chunks(1).for_each(|piece| opening.push(piece));
        opening.is_whole()
    }

    #[test]
    fn an_event_is_whole_with_the_empty_line_behind_its_data() {
        for part in ["", "data: {}", "data: {}\n", "data: {}\r\n", ": hello\n\n", "event: a\n\n"] {
            assert!(!is_whole(part), "{part:?}");
        }
        for whole in ["data: {}\n\n", ": hi\n\nevent: a\r\ndata: {}\r\n\r\n", "data:\r\r", "{}\n"] {
            assert!(is_whole(whole), "{whole:?}");
        }
    }

    #[test]
    fn what_is_held_is_bounded() {
        assert!(!is_whole(&":".repeat(MOST - 1)));
        assert!(is_whole(&":".repeat(MOST)));
    }
}
