//! Inputs as texts: a head of lines, an empty line, a body.
//!
//! Seeds are written by hand, so their forms are those of HTTP without its carriage returns. What
//! cannot be a header is left out: the HTTP parser would have refused it before our code sees it.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The first line and what follows it.
pub(crate) fn line(bytes: &[u8]) -> (&[u8], &[u8]) {
    split(bytes, b"\n")
}

/// The first line if it is a text, and what follows it.
pub(crate) fn text_line(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (line, rest) = line(bytes);
    Some((std::str::from_utf8(line).ok()?, rest))
}

/// What stands before a separator and what follows it; nothing follows if there is none.
pub(crate) fn split<'b>(bytes: &'b [u8], separator: &[u8]) -> (&'b [u8], &'b [u8]) {
    let at = bytes.windows(separator.len()).position(|window| window == separator);
    at.map_or((bytes, &[]), |at| (&bytes[..at], &bytes[at + separator.len()..]))
}

/// Headers up to an empty line, and what follows it.
pub(crate) fn headers(mut bytes: &[u8]) -> (HeaderMap, &[u8]) {
    let mut headers = HeaderMap::new();
    while !bytes.is_empty() {
        let (header, rest) = line(bytes);
        bytes = rest;
        if header.is_empty() {
            break;
        }
        let (name, value) = split(header, b":");
        let name = HeaderName::from_bytes(name.trim_ascii());
        let value = HeaderValue::from_bytes(value.trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    (headers, bytes)
}
