//! Text inputs: header lines, an empty line, a body.
//!
//! Seeds are written by hand in the form of HTTP without carriage returns. Invalid headers are left
//! out, because the HTTP parser would reject them before our code sees them.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Splits off the first line.
pub(crate) fn line(bytes: &[u8]) -> (&[u8], &[u8]) {
    split(bytes, b"\n")
}

/// Splits off the first line, if it is UTF-8.
pub(crate) fn text_line(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (line, rest) = line(bytes);
    Some((std::str::from_utf8(line).ok()?, rest))
}

/// Splits at a separator; the second part is empty if there is none.
pub(crate) fn split<'b>(bytes: &'b [u8], separator: &[u8]) -> (&'b [u8], &'b [u8]) {
    let at = bytes.windows(separator.len()).position(|window| window == separator);
    at.map_or((bytes, &[]), |at| (&bytes[..at], &bytes[at + separator.len()..]))
}

/// Parses headers up to an empty line, and returns them with the rest.
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
