//! Binds listening sockets and accepts connections, surviving accept errors.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidegate::clock::wall_now;
use tidegate_http::ThrottledLog;
use tokio::net::{TcpListener, TcpStream};

use super::files::OpenFiles;

/// Pause after an accept error such as too many open files.
const ERROR_PAUSE: Duration = Duration::from_millis(200);

/// Minimum interval between logged accept errors. At the limit of open files, each connection that
/// ends lets one in and the next error follows immediately.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of unsent bytes of a response that the kernel buffers. The socket becomes
/// writable again when half of them are sent, so this is also how much a slow reader must take to
/// count as reading. Without this option that is a third of the send buffer, which grows to
/// megabytes: a reader of 100 kB/s was disconnected for taking nothing in 10 s.
#[cfg(any(target_os = "linux", target_os = "android"))]
const NOTSENT_LOWAT: u32 = 64 * 1024;

/// Binds a listener. The returned address has the actual port if port 0 was requested.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Accepts connections and retries after errors.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    errors: ThrottledLog,
    files: OpenFiles,
}

impl Acceptor {
    pub(crate) fn new(listener: TcpListener, files: OpenFiles) -> Self {
        Self { listener, errors: ThrottledLog::every(LOG_INTERVAL), files }
    }

    /// Returns the next connection and the address of its peer. After an error it asks all
    /// listeners to close idle connections, pauses, and tries again. Repeated errors are logged
    /// once per [`LOG_INTERVAL`].
    ///
    /// Dropping the future loses no connection. It ends the pause early, which is right if a
    /// connection has just ended: there is room again.
    pub(crate) async fn accept(&self) -> (TcpStream, IpAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    disable_delay(&stream);
                    limit_unsent(&stream);
                    return (stream, peer.ip());
                }
                Err(error) if is_connection_error(&error) => {
                    tracing::debug!(%error, "connection closed before it was accepted");
                }
                Err(error) => {
                    self.log_error(&error);
                    // Whichever resource ran out, open connections hold some of it.
                    self.files.report_exhausted();
                    tokio::time::sleep(ERROR_PAUSE).await;
                }
            }
        }
    }

    fn log_error(&self, error: &io::Error) {
        if let Some(suppressed) = self.errors.due(wall_now()) {
            tracing::warn!(%error, suppressed, "cannot accept connections; will retry");
        }
    }
}

/// Returns whether an error concerns a single connection, so that the next can be accepted at once.
fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// Responses are small and callers wait for each of them, so they must not be delayed.
fn disable_delay(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "set_nodelay failed");
    }
}

/// Lets the write timeout distinguish a slow reader from one that takes nothing.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn limit_unsent(stream: &TcpStream) {
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_notsent_lowat(NOTSENT_LOWAT) {
        tracing::debug!(%error, "set_tcp_notsent_lowat failed");
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
const fn limit_unsent(_: &TcpStream) {}
