//! Listening sockets, and accepting from them whatever happens.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// How long accepting rests after an error such as too many open files.
const REST: Duration = Duration::from_millis(200);

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
    failing: bool,
}

impl Acceptor {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self { listener, failing: false }
    }

    /// The next connection. An error that lasts is logged once, and tried again after a rest.
    ///
    /// Dropping the future loses no connection. It cuts the rest short, which is right when that
    /// is done because a connection has ended: there is room again.
    pub(crate) async fn accept(&mut self) -> TcpStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    self.recovered();
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

    fn failed(&mut self, error: &io::Error) {
        if !self.failing {
            tracing::warn!(%error, "connections cannot be accepted for now, and have to wait");
        }
        self.failing = true;
    }

    fn recovered(&mut self) {
        if self.failing {
            tracing::info!("connections are accepted again");
        }
        self.failing = false;
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
