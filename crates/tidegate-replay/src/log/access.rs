//! Access logs of nginx and Apache, in the common and the combined format.
//!
//! `ADDRESS IDENT USER [TIME] "REQUEST" STATUS BYTES ...`. The place of the time is found from the
//! first quote: servers escape quotes in names of users, but not brackets and spaces, so that a
//! name could pretend to be a time.

use memchr::{memchr, memchr2};

use crate::log::RawEvent;
use crate::log::line_error::LineError;
use crate::log::timestamp::{ACCESS_LENGTH, AccessTime};

/// What the key of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKey {
    /// The first field: the client's address.
    Address,
    /// The authenticated user; `-` if there is none.
    User,
    /// The path of the request, without the query.
    Path,
    /// The method of the request.
    Method,
}

impl AccessKey {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "address" => Self::Address,
            "user" => Self::User,
            "path" => Self::Path,
            "method" => Self::Method,
            _ => return None,
        })
    }
}

/// What the cost of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessCost {
    /// One.
    Request,
    /// The size of the response.
    Bytes,
}

/// Reads lines of access logs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessParser {
    key: AccessKey,
    cost: AccessCost,
    time: AccessTime,
}

impl AccessParser {
    pub(crate) fn new(key: AccessKey, cost: AccessCost) -> Self {
        Self { key, cost, time: AccessTime::default() }
    }

    #[inline]
    pub(crate) fn parse<'l>(&mut self, line: &'l [u8]) -> Result<RawEvent<'l>, LineError> {
        let Parts { before, date, request } = split(line)?;
        let time = self.time.parse(date)?;
        let key = match self.key {
            AccessKey::Address => address(before),
            AccessKey::User => user(before),
            AccessKey::Path => path(request_text(request)?),
            AccessKey::Method => method(request_text(request)?),
        };
        let cost = match self.cost {
            AccessCost::Request => 1,
            AccessCost::Bytes => response_bytes(request)?,
        };
        Ok(RawEvent { key, time, cost })
    }
}

/// Parts of a line.
struct Parts<'l> {
    /// Address, ident and user.
    before: &'l [u8],
    date: &'l [u8; ACCESS_LENGTH],
    /// What follows the opening quote of the request.
    request: &'l [u8],
}

#[inline]
fn split(line: &[u8]) -> Result<Parts<'_>, LineError> {
    let quote = memchr(b'"', line).ok_or(LineError::NoRequest)?;
    let before = line[..quote].strip_suffix(b"] ").ok_or(LineError::NoRequest)?;
    let (before, date) = before.split_last_chunk().ok_or(LineError::NoRequest)?;
    let before = before.strip_suffix(b" [").ok_or(LineError::NoRequest)?;
    if before.is_empty() {
        return Err(LineError::Missing("address"));
    }
    Ok(Parts { before, date, request: &line[quote + 1..] })
}

#[inline]
fn address(before: &[u8]) -> &[u8] {
    &before[..memchr(b' ', before).unwrap_or(before.len())]
}

/// Returns everything after the second space, because names of users may contain spaces.
fn user(before: &[u8]) -> &[u8] {
    let rest = |text: &'_ [u8]| memchr(b' ', text).map(|at| at + 1);
    let Some(ident) = rest(before) else { return b"-" };
    let Some(user) = rest(&before[ident..]) else { return b"-" };
    match &before[ident + user..] {
        b"" => b"-",
        name => name,
    }
}

/// Returns the position of the quote that ends the request; quotes in it are escaped.
fn closing_quote(text: &[u8]) -> Result<usize, LineError> {
    let mut from = 0;
    loop {
        match memchr2(b'"', b'\\', &text[from..]).map(|at| from + at) {
            Some(at) if text[at] == b'"' => return Ok(at),
            Some(at) if at + 1 < text.len() => from = at + 2,
            _ => return Err(LineError::OpenRequest),
        }
    }
}

fn request_text(text: &[u8]) -> Result<&[u8], LineError> {
    Ok(&text[..closing_quote(text)?])
}

fn method(request: &[u8]) -> &[u8] {
    &request[..memchr(b' ', request).unwrap_or(request.len())]
}

/// Returns the path without the query, or the whole text if it is not of the form
/// `METHOD PATH PROTOCOL`: what clients send may be anything.
fn path(request: &[u8]) -> &[u8] {
    let Some(start) = memchr(b' ', request).map(|at| at + 1) else { return request };
    let target = &request[start..];
    &target[..memchr2(b' ', b'?', target).unwrap_or(target.len())]
}

/// Returns the number behind the request and the status; `-` is zero.
fn response_bytes(text: &[u8]) -> Result<u64, LineError> {
    let after = &text[closing_quote(text)? + 1..];
    let mut fields = after.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    match fields.nth(1) {
        None => Err(LineError::Missing("response size")),
        Some(b"-") => Ok(0),
        Some(number) => super::whole_number(number).ok_or(LineError::Cost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"2001:db8::7 - frank miller [10/Oct/2000:13:55:36 -0700] "GET /a/b?c=d HTTP/1.1" 200 2326 "http://example.org/" "curl/8 \"x\"""#;

    fn parse(line: &str, key: AccessKey, cost: AccessCost) -> Result<(String, u64), LineError> {
        let mut parser = AccessParser::new(key, cost);
        let event = parser.parse(line.as_bytes())?;
        assert_eq!(event.time, 971_211_336_000_000_000, "{line}");
        Ok((String::from_utf8(event.key.to_vec()).unwrap(), event.cost))
    }

    #[test]
    fn keys_and_costs_of_a_line() {
        let key = |key| parse(LINE, key, AccessCost::Request).unwrap();
        assert_eq!(key(AccessKey::Address), ("2001:db8::7".into(), 1));
        assert_eq!(key(AccessKey::User), ("frank miller".into(), 1));
        assert_eq!(key(AccessKey::Path), ("/a/b".into(), 1));
        assert_eq!(key(AccessKey::Method), ("GET".into(), 1));
        assert_eq!(parse(LINE, AccessKey::Method, AccessCost::Bytes).unwrap().1, 2_326);
    }

    #[test]
    fn requests_that_are_not_http_have_a_key_too() {
        for (request, path, method) in [
            (r"\x16\x03\x01", r"\x16\x03\x01", r"\x16\x03\x01"),
            ("-", "-", "-"),
            ("", "", ""),
            (r#"GET /a\"b\\ HTTP/1.0"#, r#"/a\"b\\"#, "GET"),
            ("GET  HTTP/1.0", "", "GET"),
        ] {
            let line = format!("::1 - - [10/Oct/2000:13:55:36 -0700] \"{request}\" 400 -");
            let key = |key| parse(&line, key, AccessCost::Bytes).unwrap();
            assert_eq!(key(AccessKey::Path), (path.into(), 0));
            assert_eq!(key(AccessKey::Method), (method.into(), 0));
            assert_eq!(key(AccessKey::User), ("-".into(), 0));
        }
    }

    /// A user may choose a name that looks like the rest of a line.
    #[test]
    fn a_name_cannot_pretend_to_be_a_time() {
        let line = "::1 - x [01/Jan/1999:00:00:00 +0000] y [10/Oct/2000:13:55:36 -0700] \"GET / \"";
        let (user, _) = parse(line, AccessKey::User, AccessCost::Request).unwrap();
        assert_eq!(user, "x [01/Jan/1999:00:00:00 +0000] y");
    }

    #[test]
    fn other_lines_are_errors() {
        for (line, error) in [
            ("", LineError::NoRequest),
            ("GET /", LineError::NoRequest),
            ("::1 - - \"GET / HTTP/1.1\" 200 5", LineError::NoRequest),
            ("10/Oct/2000:13:55:36 -0700] \"GET /\"", LineError::NoRequest),
            (" [10/Oct/2000:13:55:36 -0700] \"GET /\"", LineError::Missing("address")),
            ("::1 - - [10/Oct/2000:13:55:36 -07000] \"GET /\"", LineError::NoRequest),
            ("::1 - - [99/Oct/2000:13:55:36 -0700] \"GET /\"", LineError::AccessTime),
            ("::1 - - [10/Oct/2000:13:55:36 -0700] \"GET /", LineError::OpenRequest),
            ("::1 - - [10/Oct/2000:13:55:36 -0700] \"GET /\\", LineError::OpenRequest),
            (
                "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET /\" 200",
                LineError::Missing("response size"),
            ),
            ("::1 - - [10/Oct/2000:13:55:36 -0700] \"GET /\" 200 x", LineError::Cost),
        ] {
            let mut parser = AccessParser::new(AccessKey::Path, AccessCost::Bytes);
            assert_eq!(parser.parse(line.as_bytes()).err(), Some(error), "{line}");
        }
    }
}
