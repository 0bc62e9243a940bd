//! Lines of a stream, without copying and without an allocation per line.

use std::io::{self, Read};
use std::ops::Range;

use memchr::memchr;

const BUFFER: usize = 256 * 1024;
/// Longer lines are skipped, so that a file without line ends does not fill the memory.
const MAX_LINE: usize = 1024 * 1024;

/// A line without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line<'b> {
    /// A line.
    Complete(&'b [u8]),
    /// A line over 1 MiB, which has been skipped.
    TooLong,
}

/// Reads lines from a stream.
pub(crate) struct LineReader<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    is_at_end: bool,
}

impl<R: Read> LineReader<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, buffer: vec![0; BUFFER], start: 0, end: 0, is_at_end: false }
    }

    /// Fills the buffer and returns its content, without reading any line.
    pub(crate) fn preview(&mut self) -> io::Result<&[u8]> {
        while !self.is_at_end && self.end < self.buffer.len() {
            self.fill()?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Skips bytes of the preview.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
    }

    /// Returns the next line, without `\n` or `\r\n`.
    #[inline]
    pub(crate) fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        let Some(range) = self.next_range()? else { return Ok(None) };
        if range.len() > MAX_LINE {
            return Ok(Some(Line::TooLong));
        }
        let line = &self.buffer[range];
        Ok(Some(Line::Complete(line.strip_suffix(b"\r").unwrap_or(line))))
    }

    #[inline]
    fn next_range(&mut self) -> io::Result<Option<Range<usize>>> {
        let mut searched = 0;
        loop {
            let from = self.start;
            if let Some(at) = memchr(b'\n', &self.buffer[from + searched..self.end]) {
                let end = from + searched + at;
                self.start = end + 1;
                return Ok(Some(from..end));
            }
            searched = self.end - from;
            if self.is_at_end {
                self.start = self.end;
                return Ok((searched > 0).then_some(from..self.end));
            }
            if searched > MAX_LINE {
                return self.skip_line(searched).map(Some);
            }
            self.fill()?;
        }
    }

    /// Skips the rest of a line that is too long. Returns a range of its length, or the maximum
    /// that the buffer holds.
    fn skip_line(&mut self, searched: usize) -> io::Result<Range<usize>> {
        loop {
            (self.start, self.end) = (0, 0);
            self.fill()?;
            match memchr(b'\n', &self.buffer[..self.end]) {
                Some(at) => self.start = at + 1,
                None if self.is_at_end => self.start = self.end,
                None => continue,
            }
            return Ok(0..searched);
        }
    }

    /// Reads more behind the present content, which moves to the front.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.is_at_end = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<Option<Vec<u8>>> {
        let mut reader = LineReader::new(text);
        let mut found = Vec::new();
        while let Some(line) = reader.next_line().unwrap() {
            found.push(match line {
                Line::Complete(line) => Some(line.to_vec()),
                Line::TooLong => None,
            });
        }
        found
    }

    #[test]
    fn lines_end_with_a_newline_or_the_file() {
        let some = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(lines(b"a\r\nb\n\nc"), [some("a"), some("b"), some(""), some("c")]);
        assert_eq!(lines(b""), []);
        assert_eq!(lines(b"\n"), [some("")]);
    }

    #[test]
    fn lines_of_any_length_are_whole_and_too_long_ones_are_skipped() {
        for length in [BUFFER - 1, BUFFER, BUFFER + 1, MAX_LINE] {
            let line = vec![b'x'; length];
            let text = [b"first\n", &line[..], b"\nlast\n"].concat();
            assert_eq!(lines(&text), [Some(b"first".to_vec()), Some(line), Some(b"last".to_vec())]);
        }
        for length in [MAX_LINE + 1, 3 * MAX_LINE, 4 * MAX_LINE + 7] {
            let line = vec![b'x'; length];
            let text = [b"first\n", &line[..], b"\nlast"].concat();
            assert_eq!(lines(&text), [Some(b"first".to_vec()), None, Some(b"last".to_vec())]);
            assert_eq!(lines(&line), [None]);
        }
    }
}
