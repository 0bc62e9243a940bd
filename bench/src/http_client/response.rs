//! A minimal HTTP/1.1 response parser that only finds the end of a response.

use anyhow::{Context as _, Result, bail, ensure};

/// Maximum size of a response; a larger one is an error.
const MAX_RESPONSE: usize = 64 * 1024;

/// The end of a chunked body.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Progress of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No byte of the body has arrived.
    Head,
    /// A part of the body has arrived.
    Body,
    /// The response is complete.
    Whole,
}

/// The bytes so far.
#[derive(Debug, Default)]
pub(super) struct Response {
    bytes: Vec<u8>,
    /// Start of the body, and its framing.
    body: Option<(usize, Framing)>,
}

#[derive(Clone, Copy, Debug)]
enum Framing {
    Length(usize),
    Chunked,
}

impl Response {
    /// Clears the state for the next response.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.body = None;
    }

    /// The bytes of the body so far.
    pub(super) fn body(&self) -> &[u8] {
        self.body.map_or(&[], |(start, _)| &self.bytes[start..])
    }

    /// Adds received bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<Stage> {
        self.bytes.extend_from_slice(bytes);
        ensure!(self.bytes.len() <= MAX_RESPONSE, "the response is too long");
        let (start, framing) = match self.body {
            Some(body) => body,
            None => match self.head()? {
                Some(body) => *self.body.insert(body),
                None => return Ok(Stage::Head),
            },
        };
        let there = &self.bytes[start..];
        let is_whole = match framing {
            Framing::Length(length) => there.len() >= length,
            Framing::Chunked => there.ends_with(LAST_CHUNK),
        };
        Ok(match there.len() {
            _ if is_whole => Stage::Whole,
            0 => Stage::Head,
            _ => Stage::Body,
        })
    }

    /// Parses the head once it is complete.
    fn head(&self) -> Result<Option<(usize, Framing)>> {
        let end = self.bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end else { return Ok(None) };
        let head = str::from_utf8(&self.bytes[..end]).context("the response head is not UTF-8")?;
        let mut lines = head.lines();
        let first = lines.next().unwrap_or_default();
        if !first.starts_with("HTTP/1.1 200 ") {
            let rest = String::from_utf8_lossy(&self.bytes[end..]);
            bail!("unexpected response {first}: {}", rest.trim());
        }
        let framing = lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
            if name.eq_ignore_ascii_case("content-length") {
                return value.trim().parse().ok().map(Framing::Length);
            }
            let chunked = name.eq_ignore_ascii_case("transfer-encoding")
                && value.trim().eq_ignore_ascii_case("chunked");
            chunked.then_some(Framing::Chunked)
        });
        Ok(Some((end + 4, framing.context("the response has neither a length nor chunks")?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_with_a_length_ends_there() {
        let mut response = Response::default();
        for _ in 0..2 {
            assert_eq!(response.add(b"HTTP/1.1 200 OK\r\nContent-Le").unwrap(), Stage::Head);
            assert_eq!(response.add(b"ngth: 5\r\n\r\n").unwrap(), Stage::Head);
            assert_eq!(response.add(b"hel").unwrap(), Stage::Body);
            assert_eq!(response.add(b"lo").unwrap(), Stage::Whole);
            assert_eq!(response.body(), b"hello");
            response.clear();
        }
    }

    #[test]
    fn a_response_in_chunks_ends_with_the_empty_one() {
        let mut response = Response::default();
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(response.add(head).unwrap(), Stage::Head);
        assert_eq!(response.add(b"3\r\n0\n\n\r\n").unwrap(), Stage::Body);
        assert_eq!(response.add(b"0\r\n").unwrap(), Stage::Body);
        assert_eq!(response.add(b"\r\n").unwrap(), Stage::Whole);
    }

    #[test]
    fn other_statuses_are_errors() {
        let mut response = Response::default();
        let error = response.add(b"HTTP/1.1 429 Too Many Requests\r\n\r\nslow down").unwrap_err();
        assert!(error.to_string().contains("429 Too Many Requests"), "{error}");
        response.clear();
        assert!(response.add(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        response.clear();
        assert!(response.add(&vec![b'x'; MAX_RESPONSE + 1]).is_err());
    }
}
