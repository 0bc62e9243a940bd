//! Lines out of pieces of bytes, wherever the pieces end.
//!
//! A line ends with CR, LF or both, as in event streams; lines of JSON have neither inside of them.
//! Every byte is looked at once. A line that never ends is an error, not a full memory.

use super::error::DecodeError;
use super::stream::MAX_EVENT;

/// What some servers put before the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A splitter, with the line that has not ended yet.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    /// The last byte was a CR, so that an LF now belongs to it.
    after_return: bool,
    is_past_first: bool,
}

impl Lines {
    /// Takes bytes, and hands out every line that ends in them, without its end.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if self.after_return && !bytes.is_empty() {
            self.after_return = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, rest) = bytes.split_at(end);
            self.keep(line)?;
            self.finish(&mut each)?;
            bytes = match rest {
                [b'\r', b'\n', rest @ ..] | [_, rest @ ..] => rest,
                [] => rest,
            };
            self.after_return = rest == b"\r";
        }
        self.keep(bytes)
    }

    /// Hands out what stands after the last end of a line, if there is anything.
    pub(super) fn end(
        &mut self,
        mut each: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if self.line.is_empty() { Ok(()) } else { self.finish(&mut each) }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        if self.line.len() + bytes.len() > MAX_EVENT {
            return Err(DecodeError::TooLong { limit: MAX_EVENT });
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
    fn a_line_ends_with_either_or_both() {
        assert_eq!(split(&[b"a\nb\rc\r\nd\n\re"]), ["a", "b", "c", "d", "", "e"]);
        assert_eq!(split(&[b"a\r", b"\nb\r", b"", b"\n", b"\nc"]), ["a", "b", "", "c"]);
        assert_eq!(split(&[b"a\n\n"]), ["a", ""]);
    }

    #[test]
    fn a_mark_before_the_first_line_is_no_part_of_it() {
        assert_eq!(split(&[b"\xEF\xBB", b"\xBFa\n\xEF\xBB\xBFb"]), ["a", "\u{feff}b"]);
    }

    #[test]
    fn a_line_that_never_ends_is_refused() {
        let mut lines = Lines::default();
        let mebibyte = vec![b' '; 1 << 20];
        for _ in 0..16 {
            lines.feed(&mebibyte, |_| Ok(())).unwrap();
        }
        let error = lines.feed(b" ", |_| Ok(())).unwrap_err();
        assert!(matches!(error, DecodeError::TooLong { limit: MAX_EVENT }));
    }
}
