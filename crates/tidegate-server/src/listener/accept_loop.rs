//! The accept loop of a listener: accepts connections up to a bound, and waits for all of them when
//! it stops.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::wall_now;
use tidegate_http::ThrottledLog;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::accept::Acceptor;
use super::connections::{Admission, Capacity, Connections};
use super::drain::StopSignal;
use super::eviction::Evict;
use super::files::OpenFiles;
use super::workers::{DetachedStream, Workers};
use crate::metrics::ConnectionMetrics;

/// Minimum interval between logged refusals, and between logged waits.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// How often a connection that waits for capacity tries again to evict another.
const ADMIT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Capacity of a listener, and what is informed about its connections.
#[derive(Debug)]
pub(crate) struct AcceptSettings {
    pub(crate) capacity: Capacity,
    pub(crate) files: OpenFiles,
    pub(crate) metrics: ConnectionMetrics,
    /// Bytes written to a refused connection before it is closed.
    pub(crate) refusal: &'static [u8],
}

/// Accepts connections and serves each in a task of its own until `stop` is set. Then closes the
/// listener and waits for the open connections.
///
/// A network at its connection limit gets no further connections unless one of its idle ones can be
/// evicted. If the listener is full, an idle connection is evicted; if all are busy, the new
/// connection waits.
///
/// `connection` returns the handle that evicts a connection, and the future that serves it.
///
/// Dropping the future closes all connections.
pub(crate) async fn serve<F>(
    listener: TcpListener,
    settings: AcceptSettings,
    workers: &Workers,
    stop: StopSignal,
    connection: impl Fn(DetachedStream, IpAddr) -> (Arc<dyn Evict>, F),
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut files = settings.files.watch();
    let acceptor = Acceptor::new(listener, settings.files.clone());
    let mut state = AcceptState::new(settings);
    let mut waiting: Option<(TcpStream, IpAddr)> = None;
    let mut stop = pin!(stop.wait());
    loop {
        let (stream, peer) = tokio::select! {
            biased;
            () = &mut stop => break,
            Some(ended) = state.tasks.join_next_with_id() => {
                state.connection_ended(ended);
                let Some(waiting) = waiting.take() else { continue };
                waiting
            }
            Ok(()) = files.changed() => {
                state.connections.free_files(Instant::now());
                state.count_evicted();
                continue;
            }
            () = tokio::time::sleep(ADMIT_RETRY_INTERVAL), if waiting.is_some() => {
                let Some(waiting) = waiting.take() else { continue };
                waiting
            }
            accepted = acceptor.accept(), if waiting.is_none() => accepted,
        };
        match state.admit(peer) {
            Admission::Admitted => {
                let (handle, served) = connection(DetachedStream::new(stream), peer);
                let task = state.tasks.spawn_on(served, workers.next());
                state.connections.insert(task.id(), peer, handle);
            }
            Admission::Refused => state.refuse(stream),
            Admission::Full => waiting = Some((stream, peer)),
        }
    }
    drop((acceptor, waiting));
    while let Some(ended) = state.tasks.join_next_with_id().await {
        state.connection_ended(ended);
    }
}

/// The open connections with their tasks.
#[derive(Debug)]
struct AcceptState {
    tasks: JoinSet<()>,
    connections: Connections,
    settings: AcceptSettings,
    refused: ThrottledLog,
    full: ThrottledLog,
}

impl AcceptState {
    fn new(settings: AcceptSettings) -> Self {
        let connections = Connections::new(settings.capacity.clone());
        let [refused, full] = [(); 2].map(|()| ThrottledLog::every(LOG_INTERVAL));
        Self { tasks: JoinSet::new(), connections, settings, refused, full }
    }

    fn admit(&mut self, peer: IpAddr) -> Admission {
        let admission = self.connections.admit(peer, Instant::now());
        self.count_evicted();
        let Capacity { total, per_network, .. } = self.settings.capacity;
        match admission {
            Admission::Admitted => {}
            Admission::Refused => {
                self.settings.metrics.refused();
                if let Some(suppressed) = self.refused.due(wall_now()) {
                    tracing::warn!(
                        %peer, per_network, suppressed,
                        "connection refused: too many busy connections from its network"
                    );
                }
            }
            Admission::Full => {
                if let Some(suppressed) = self.full.due(wall_now()) {
                    tracing::warn!(
                        total,
                        suppressed,
                        "connection limit reached and all connections busy; new connections wait"
                    );
                }
            }
        }
        admission
    }

    /// Writes the refusal and closes the connection. Never blocks.
    fn refuse(&self, stream: TcpStream) {
        use std::io::Write as _;
        // If the caller is gone or its buffer is full, the refusal is dropped.
        if let Ok(mut stream) = stream.into_std() {
            let _ = stream.write(self.settings.refusal);
        }
    }

    fn count_evicted(&mut self) {
        self.settings.metrics.evicted(self.connections.take_evicted());
    }

    fn connection_ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => {
                tracing::error!(%error, "connection task failed");
                error.id()
            }
        };
        self.connections.remove(id);
    }
}
