//! The test's own hand on a server: one command, one connection, one reply.
//!
//! Just enough of RESP2 for that, and blocking. It shares no code with the client under test.

use std::io::{self, BufRead, BufReader, Error, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::launch::deadline;

/// The user that tests control a server as, whatever they set for others.
pub(super) const USER: &str = "testkit";
pub(super) const PASSWORD: &str = "testkit";

/// What a server replied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status or a string; bytes that are no UTF-8 are replaced.
    Text(String),
    /// An error, with its code.
    Error(String),
    /// An integer.
    Integer(i64),
    /// Nothing.
    Nil,
    /// A list.
    Array(Vec<Reply>),
}

impl Reply {
    /// The text.
    ///
    /// # Panics
    /// When it is something else.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            other => panic!("not a text: {other:?}"),
        }
    }

    /// The integer.
    ///
    /// # Panics
    /// When it is something else.
    #[must_use]
    pub fn integer(self) -> i64 {
        match self {
            Self::Integer(integer) => integer,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// The list.
    ///
    /// # Panics
    /// When it is something else.
    #[must_use]
    pub fn array(self) -> Vec<Self> {
        match self {
            Self::Array(items) => items,
            other => panic!("not a list: {other:?}"),
        }
    }
}

/// Sends a command over a connection of its own and waits for at most so long.
pub(super) fn execute_within(
    address: SocketAddr,
    words: &[&str],
    limit: Duration,
) -> io::Result<Reply> {
    let stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let greeting = exchange(&mut stream, &["AUTH", USER, PASSWORD])?;
    if greeting != Reply::Text("OK".to_owned()) {
        return Err(Error::other(format!("a server that is not ours: {greeting:?}")));
    }
    exchange(&mut stream, words)
}

/// Sends a command and waits for at most the usual time.
pub(super) fn execute(address: SocketAddr, words: &[&str]) -> io::Result<Reply> {
    execute_within(address, words, deadline::TIMEOUT)
}

fn exchange(stream: &mut BufReader<TcpStream>, words: &[&str]) -> io::Result<Reply> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.get_mut().write_all(request.as_bytes())?;
    read(stream)
}

fn read(stream: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let Some(line) = line.strip_suffix("\r\n") else {
        return Err(ErrorKind::UnexpectedEof.into());
    };
    let (kind, rest) = line.split_at_checked(1).unwrap_or_default();
    match kind {
        "+" => Ok(Reply::Text(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => Ok(Reply::Integer(number(rest)?)),
        "$" => match usize::try_from(number(rest)?) {
            Ok(length) => read_text(stream, length),
            Err(_) => Ok(Reply::Nil),
        },
        "*" => match usize::try_from(number(rest)?) {
            Ok(length) => {
                (0..length).map(|_| read(stream)).collect::<Result<_, _>>().map(Reply::Array)
            }
            Err(_) => Ok(Reply::Nil),
        },
        _ => Err(invalid(line)),
    }
}

fn read_text(stream: &mut impl BufRead, length: usize) -> io::Result<Reply> {
    let mut bytes = vec![0; length + 2];
    stream.read_exact(&mut bytes)?;
    bytes.truncate(length);
    Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| invalid(text))
}

fn invalid(line: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("not RESP2: {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(mut bytes: &[u8]) -> Reply {
        let reply = read(&mut bytes).unwrap();
        assert!(bytes.is_empty(), "{bytes:?} is left over");
        reply
    }

    #[test]
    fn replies_of_every_kind_are_read() {
        assert_eq!(parsed(b"+PONG\r\n"), Reply::Text("PONG".to_owned()));
        assert_eq!(parsed(b"$4\r\na\r\nb\r\n"), Reply::Text("a\r\nb".to_owned()));
        assert_eq!(parsed(b"-ERR no\r\n"), Reply::Error("ERR no".to_owned()));
        assert_eq!(parsed(b":-7\r\n").integer(), -7);
        assert_eq!(parsed(b"$-1\r\n"), Reply::Nil);
        assert_eq!(parsed(b"*-1\r\n"), Reply::Nil);
        let list = parsed(b"*2\r\n:1\r\n*1\r\n$0\r\n\r\n").array();
        assert_eq!(list, [Reply::Integer(1), Reply::Array(vec![Reply::Text(String::new())])]);
    }

    #[test]
    fn anything_else_is_an_error() {
        for bytes in ["", "+PON", "$4\r\nab", "?\r\n", ":x\r\n", "\r\n"] {
            assert!(read(&mut bytes.as_bytes()).is_err(), "{bytes:?}");
        }
    }
}
