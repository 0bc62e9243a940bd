//! Listening sockets, and accepting from them whatever happens.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidegate::clock::wall_now;
use tidegate_http::ThrottledLog;
use tokio::net::{TcpListener, TcpStream};

use super::files::OpenFiles;

/// How long accepting rests after an error such as too many open files.
const REST: Duration = Duration::from_millis(200);

/// How long such errors are not logged again. At the bound of open files each connection that ends
/// lets one in, and the next error follows at once.
const SILENCE: Duration = Duration::from_secs(60);

/// How many bytes of a response the kernel keeps before it has sent them. It says that there is room
/// again when half of them are gone, so this is also how much a slow reader has to take to be seen
/// reading. Without it that is a third of the send buffer, which grows to megabytes: a reader of
/// 100 kB/s was cut for taking nothing in 10 s.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT: u32 = 64 * 1024;

/// Binds an address. The second value is the one that was bound, with the port that was picked.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// A listener that outlives its errors.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    errors: ThrottledLog,
    files: OpenFiles,
}

impl Acceptor {
    pub(crate) fn new(listener: TcpListener, files: OpenFiles) -> Self {
        Self { listener, errors: ThrottledLog::every(SILENCE), files }
    }

    /// The next connection, and who made it. After an error it has connections closed that wait for
    /// their callers, rests, and tries again; errors in a row are logged once.
    ///
    /// Dropping the future loses no connection. It cuts the rest short, which is right when that
    /// is done because a connection has ended: there is room again.
    pub(crate) async fn accept(&self) -> (TcpStream, IpAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    without_delay(&stream);
                    with_little_unsent(&stream);
                    return (stream, peer.ip());
                }
                Err(error) if is_of_the_caller(&error) => {
                    tracing::debug!(%error, "a caller went away before it was accepted");
                }
                Err(error) => {
                    self.failed(&error);
                    // Whatever it is that there is not enough of, connections have some of it.
                    self.files.ran_out();
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    fn failed(&self, error: &io::Error) {
        if let Some(suppressed) = self.errors.due(wall_now()) {
            tracing::warn!(%error, suppressed, "connections cannot be accepted for now, and have to wait");
        }
    }
}

/// Errors of the one connection, after which the next can be accepted at once.
fn is_of_the_caller(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// Answers are small and each is waited for: they leave at once instead of being gathered.
fn without_delay(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "set_nodelay failed");
    }
}

/// Lets a reader that is slow be told from one that takes nothing.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn with_little_unsent(stream: &TcpStream) {
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT) {
        tracing::debug!(%error, "set_tcp_notsent_lowat failed");
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
const fn with_little_unsent(_: &TcpStream) {}
