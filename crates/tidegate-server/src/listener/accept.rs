//! Listening sockets, and accepting from them whatever happens.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate::clock::wall_now;
use tidegate_http::ThrottledLog;
use tokio::net::{TcpListener, TcpStream};

/// How long accepting rests after an error such as too many open files.
const REST: Duration = Duration::from_millis(200);

/// How long such errors are not logged again. At the bound of open files each connection that ends
/// lets one in, and the next error follows at once.
const SILENCE: Duration = Duration::from_secs(60);

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
}

impl Acceptor {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self { listener, errors: ThrottledLog::every(SILENCE) }
    }

    /// The next connection. After an error it rests and tries again; errors in a row are logged
    /// once.
    ///
    /// Dropping the future loses no connection. It cuts the rest short, which is right when that
    /// is done because a connection has ended: there is room again.
    pub(crate) async fn accept(&self) -> TcpStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    without_delay(&stream);
                    return stream;
                }
                Err(error) if is_of_the_caller(&error) => {
                    tracing::debug!(%error, "a caller went away before it was accepted");
                }
                Err(error) => {
                    self.failed(&error);
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
        tracing::debug!(%error, "a connection keeps its delay");
    }
}
