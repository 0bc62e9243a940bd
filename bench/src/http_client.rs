//! A minimal HTTP/1.1 client: persistent connections with one request after the other.
//!
//! Requests are built beforehand, and only the end of a response is parsed, because the client must
//! cost less than the server.

mod response;

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::stopwatch::Stopwatch;
use response::{Response, Stage};

/// Returns the bytes of a POST with a JSON body. `headers` are complete lines.
pub(crate) fn post(address: SocketAddr, path: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\naccept: application/json\r\n{headers}\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// One connection.
pub(crate) struct Connection {
    stream: TcpStream,
    response: Response,
}

/// Duration of a call in nanoseconds: to the first byte of the body, and to the last.
pub(crate) struct Took {
    pub(crate) first: u64,
    pub(crate) whole: u64,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, response: Response::default() })
    }

    /// Sends a request and reads the response, whose status must be 200.
    pub(crate) async fn call(&mut self, request: &[u8]) -> Result<Took> {
        self.response.clear();
        let stopwatch = Stopwatch::start();
        self.stream.write_all(request).await?;
        let mut first = None;
        let mut buffer = [0; 8_192];
        loop {
            let read = self.stream.read(&mut buffer).await?;
            ensure!(read > 0, "the connection was closed before the end of a response");
            let stage = self.response.add(&buffer[..read])?;
            if stage != Stage::Head && first.is_none() {
                first = Some(stopwatch.nanos());
            }
            if stage == Stage::Whole {
                let whole = stopwatch.nanos();
                return Ok(Took { first: first.unwrap_or(whole), whole });
            }
        }
    }

    /// The body of the last response, with the frames of chunks.
    pub(crate) fn body(&self) -> &[u8] {
        self.response.body()
    }
}
