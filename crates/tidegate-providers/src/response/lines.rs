//! Splits chunks of bytes into lines, wherever the chunks end.
//!
//! A line ends with CR, LF or CRLF, as in event streams. Each byte is examined once. A line that
//! exceeds the maximum length is an error, so memory stays bounded.

use super::error::DecodeError;
use super::stream::MAX_EVENT;

/// UTF-8 byte order mark, which some servers send before the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Line splitter with a buffer for the incomplete line.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    /// The last byte was a CR; an LF that follows belongs to it.
    is_after_cr: bool,
    is_past_first: bool,
}

impl Lines {
    /// Calls `each` with every line completed by `bytes`, without its terminator.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if self.is_after_cr && !bytes.is_empty() {
            self.is_after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, rest) = bytes.split_at(end);
            self.buffer(line)?;
            self.finish(&mut each)?;
            bytes = match rest {
                [b'\r', b'\n', rest @ ..] | [_, rest @ ..] => rest,
                [] => rest,
            };
            self.is_after_cr = rest == b"\r";
        }
        self.buffer(bytes)
    }

    /// Calls `each` with the text after the last line terminator, unless it is empty.
    pub(super) fn end(
        &mut self,
        mut each: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if self.line.is_empty() { Ok(()) } else { self.finish(&mut each) }
    }

    fn buffer(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        if self.line.len() + bytes.len() > MAX_EVENT {
            return Err(DecodeError::TooLarge { limit: MAX_EVENT });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(
        &mut self,
        each: &mut impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut line = self.line.as_slice();
        if !self.is_past_first {
            self.is_past_first = true;
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        let done = each(line);
        self.line.clear();
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        let mut each = |line: &[u8]| {
            found.push(String::from_utf8(line.to_vec()).unwrap());
            Ok(())
        };
        for piece in pieces {
            lines.feed(piece, &mut each).unwrap();
        }
        lines.end(&mut each).unwrap();
        found
    }

    #[test]
    fn line_ends_with_cr_lf_or_both() {
        assert_eq!(split(&[b"a\nb\rc\r\nd\n\re"]), ["a", "b", "c", "d", "", "e"]);
        assert_eq!(split(&[b"a\r", b"\nb\r", b"", b"\n", b"\nc"]), ["a", "b", "", "c"]);
        assert_eq!(split(&[b"a\n\n"]), ["a", ""]);
    }

    #[test]
    fn byte_order_mark_is_removed_from_the_first_line() {
        assert_eq!(split(&[b"\xEF\xBB", b"\xBFa\n\xEF\xBB\xBFb"]), ["a", "\u{feff}b"]);
    }

    #[test]
    fn endless_line_is_rejected() {
        let mut lines = Lines::default();
        let mebibyte = vec![b' '; 1 << 20];
        for _ in 0..16 {
            lines.feed(&mebibyte, |_| Ok(())).unwrap();
        }
        let error = lines.feed(b" ", |_| Ok(())).unwrap_err();
        assert!(matches!(error, DecodeError::TooLarge { limit: MAX_EVENT }));
    }
}
