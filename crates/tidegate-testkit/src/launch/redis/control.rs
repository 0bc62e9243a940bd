//! Sends commands to a server from a test: one connection per command.
//!
//! A minimal blocking RESP2 client. It shares no code with the client under test.

use std::io::{self, BufRead, BufReader, Error, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::launch::deadline;

/// The user for control commands, independent of the users that a test configures.
pub(super) const USER: &str = "testkit";
pub(super) const PASSWORD: &str = "testkit";

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status or a string; invalid UTF-8 is replaced.
    Text(String),
    /// An error, with its code.
    Error(String),
    /// An integer.
    Integer(i64),
    /// A null reply.
    Nil,
    /// A list.
    Array(Vec<Reply>),
}

impl Reply {
    /// Returns the text of the reply.
    ///
    /// # Panics
    /// If the reply is not a text.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            other => panic!("not a text: {other:?}"),
        }
    }

    /// Returns the integer of the reply.
    ///
    /// # Panics
    /// If the reply is not an integer.
    #[must_use]
    pub fn integer(self) -> i64 {
        match self {
            Self::Integer(integer) => integer,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// Returns the items of the reply.
    ///
    /// # Panics
    /// If the reply is not a list.
    #[must_use]
    pub fn array(self) -> Vec<Self> {
        match self {
            Self::Array(items) => items,
            other => panic!("not a list: {other:?}"),
        }
    }
}

/// Sends a command over a new connection and waits at most `timeout` for the reply.
pub(super) fn execute_within(
    address: SocketAddr,
    words: &[&str],
    timeout: Duration,
) -> io::Result<Reply> {
    let stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let greeting = exchange(&mut stream, &["AUTH", USER, PASSWORD])?;
    if greeting != Reply::Text("OK".to_owned()) {
        return Err(Error::other(format!("the port belongs to another server: {greeting:?}")));
    }
    exchange(&mut stream, words)
}

/// Sends a command over a new connection, with the default timeout.
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
