//! Connections from any loopback address, and requests as bytes.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// Upper bound of the size of a response.
const MAX_ANSWER: usize = 256 * 1_024;

/// The loopback address with this last octet.
pub(super) const fn loopback(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, last)
}

/// Connects from this address.
pub(super) async fn connect(from: Ipv4Addr, to: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let connecting = tokio::time::timeout(Duration::from_secs(10), socket.connect(to));
    let stream = connecting.await.context("no connection within ten seconds")??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A request with a body.
pub(super) fn request(line: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A chat request with a key and additional headers.
pub(super) fn chat(key: &str, headers: &str, model: &str, stream: bool) -> Vec<u8> {
    let body = format!(
        "{{\"model\":\"{model}\",\"stream\":{stream},\"max_tokens\":20,\
         \"messages\":[{{\"role\":\"user\",\"content\":\"When does the tide turn?\"}}]}}"
    );
    let headers =
        format!("authorization: Bearer {key}\r\ncontent-type: application/json\r\n{headers}");
    request("POST /openai/v1/chat/completions", &headers, body.as_bytes())
}

/// A `POST /v1/take` request for one key.
pub(super) fn take(key: &str) -> Vec<u8> {
    let body = format!("{{\"key\":\"{key}\",\"limit\":\"client\",\"cost\":1}}");
    request("POST /v1/take", "content-type: application/json\r\n", body.as_bytes())
}

/// Sends a request and reads the answer to its end; its status.
pub(super) async fn ask(stream: &mut TcpStream, request: &[u8]) -> Result<u16> {
    stream.write_all(request).await?;
    let mut answer = Vec::with_capacity(2_048);
    loop {
        if stream.read_buf(&mut answer).await? == 0 {
            bail!("the connection was closed in the middle of an answer");
        }
        if answer.len() > MAX_ANSWER {
            bail!("an answer is too long");
        }
        if let Some(status) = whole(&answer) {
            return Ok(status);
        }
    }
}

/// The status of an answer that is there to its end.
fn whole(answer: &[u8]) -> Option<u16> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&answer[..end]).ok()?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let is_whole = match length.and_then(|length| length.trim().parse::<usize>().ok()) {
        Some(length) => answer.len() >= end + length,
        None => answer.ends_with(b"0\r\n\r\n"),
    };
    let status = head.split(' ').nth(1)?.parse().ok()?;
    is_whole.then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_last_byte() {
        let counted = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        assert_eq!(whole(counted), Some(200));
        assert_eq!(whole(&counted[..counted.len() - 1]), None);
        let chunked = b"HTTP/1.1 429 X\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
        assert_eq!(whole(chunked), Some(429));
        assert_eq!(whole(&chunked[..chunked.len() - 2]), None);
    }
}
