//! The connections of a door: accepted up to a bound, and all ended before the door is closed.

use std::pin::pin;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};

use crate::listener::accept::Acceptor;
use crate::listener::drain::Stop;
use crate::listener::workers::{self, Workers};

/// Serves each connection by a task of its own, at most `most` at once; others wait in the
/// listener's queue. Once told to stop it closes the listener and waits for what is under way.
///
/// Dropping the future cuts the connections.
pub(crate) async fn serve<F>(
    listener: TcpListener,
    most: usize,
    workers: &Workers,
    stop: Stop,
    connection: impl Fn(TcpStream) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let acceptor = Acceptor::new(listener);
    let mut crowd = Crowd { tasks: JoinSet::new(), most, full: false };
    let mut stop = pin!(stop.told());
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(ended) = crowd.tasks.join_next() => crowd.left(ended),
            stream = acceptor.accept(), if crowd.has_room() => {
                let connection = connection.clone();
                crowd.joined(workers.next(), workers::moved(stream, connection));
            }
        }
    }
    drop(acceptor);
    while let Some(ended) = crowd.tasks.join_next().await {
        crowd.left(ended);
    }
}

/// The connections that are open.
#[derive(Debug)]
struct Crowd {
    tasks: JoinSet<()>,
    most: usize,
    /// Whether it has been full, and not half empty since.
    full: bool,
}

impl Crowd {
    fn has_room(&self) -> bool {
        self.tasks.len() < self.most
    }

    fn joined(&mut self, worker: &Handle, connection: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_on(connection, worker);
        if !self.has_room() && !self.full {
            self.full = true;
            tracing::warn!(most = self.most, "a door is full, further connections have to wait");
        }
    }

    fn left(&mut self, ended: Result<(), JoinError>) {
        if let Err(error) = ended {
            tracing::error!(%error, "a connection ended badly");
        }
        self.full &= self.tasks.len() > self.most / 2;
    }
}
