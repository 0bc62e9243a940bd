//! Tunnels through a proxy with `CONNECT`.

use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::connector::Peer;
use crate::call::ConnectionError;
use crate::proxy::Proxy;

/// Maximum size of a proxy's response head.
const MAX_HEAD: usize = 16 << 10;

/// Opens a tunnel to a server on a connection to a proxy.
pub(super) async fn open(
    stream: impl Read + Write + Unpin,
    server: &Peer,
    proxy: &Proxy,
) -> Result<(), ConnectionError> {
    let mut stream = TokioIo::new(stream);
    let failed = |reason: TunnelFailure| {
        let (proxy, host) = (proxy.host_port().to_owned(), server.host.clone());
        ConnectionError::Tunnel { proxy, host, reason: reason.to_string().into() }
    };
    stream.write_all(&request(server, proxy)).await.map_err(|_| failed(TunnelFailure::Closed))?;
    let mut head = Vec::new();
    loop {
        let read = stream.read_buf(&mut head).await.map_err(|_| failed(TunnelFailure::Closed))?;
        let end = head.windows(4).position(|four| four == b"\r\n\r\n");
        match (end, read) {
            (Some(end), _) => {
                let status = status(&head).ok_or_else(|| failed(TunnelFailure::NotHttp))?;
                let rest = head.len() - end - 4;
                return match status {
                    // With TLS the client sends first, so no data may follow the head.
                    200..=299 if rest == 0 => Ok(()),
                    200..=299 => Err(failed(TunnelFailure::NotHttp)),
                    407 => Err(failed(TunnelFailure::Credentials)),
                    other => Err(failed(TunnelFailure::Status(other))),
                };
            }
            (None, 0) => return Err(failed(TunnelFailure::Closed)),
            (None, _) if head.len() > MAX_HEAD => return Err(failed(TunnelFailure::NotHttp)),
            (None, _) => {}
        }
    }
}

fn request(server: &Peer, proxy: &Proxy) -> Vec<u8> {
    let target = server.host_port();
    let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
    if let Some(value) = proxy.authorization() {
        head.extend_from_slice(b"Proxy-Authorization: ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Parses the status of a response.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.strip_prefix(b"HTTP/1.")?;
    let digits = line.get(2..5).filter(|_| line.get(1) == Some(&b' '))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Why a tunnel could not be opened.
#[derive(Debug, thiserror::Error)]
enum TunnelFailure {
    #[error("the proxy closed the connection")]
    Closed,
    #[error("the response is not that of an HTTP proxy")]
    NotHttp,
    #[error("status 407, proxy authentication required: check the user and password of the proxy")]
    Credentials,
    #[error("status {0}")]
    Status(u16),
}
