//! Worker threads that serve connections, each with its own runtime.
//!
//! A connection and the calls to providers it makes stay on one thread. Waking another thread would
//! cost more than most decisions. Connections are assigned round robin.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Maximum number of threads; more bring no benefit.
const MAX_WORKERS: usize = 64;

/// The worker threads. Dropping this ends them and closes the connections they serve.
#[derive(Debug)]
pub(crate) struct Workers {
    handles: Vec<Handle>,
    next: AtomicUsize,
    /// Dropping these ends the threads.
    _alive: Vec<oneshot::Sender<()>>,
}

impl Workers {
    /// Starts one thread per available core, at most [`MAX_WORKERS`].
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn start() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS);
        let (mut handles, mut alive) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (sender, shutdown) = oneshot::channel::<()>();
            handles.push(runtime.handle().clone());
            alive.push(sender);
            thread::Builder::new().name("tidegate-worker".to_owned()).spawn(move || {
                // An error means that the sender was dropped, which is the signal to end.
                let _ = runtime.block_on(shutdown);
                runtime.shutdown_background();
            })?;
        }
        Ok(Self { handles, next: AtomicUsize::new(0), _alive: alive })
    }

    /// Starts no threads: connections are served by the current runtime.
    pub(crate) fn current_runtime() -> Self {
        Self { handles: vec![Handle::current()], next: AtomicUsize::new(0), _alive: Vec::new() }
    }

    /// Returns the runtime for the next connection.
    pub(crate) fn next(&self) -> &Handle {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        // `handles` is never empty.
        &self.handles[index % self.handles.len()]
    }
}

/// A connection on its way from the runtime that accepted it to the one that serves it.
#[derive(Debug)]
pub(crate) struct DetachedStream(io::Result<std::net::TcpStream>);

impl DetachedStream {
    /// Detaches a connection from the runtime that accepted it.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(stream.into_std())
    }

    /// Attaches the connection to the current runtime. Logs a failure.
    pub(crate) fn attach(self) -> Option<TcpStream> {
        match self.0.and_then(TcpStream::from_std) {
            Ok(stream) => Some(stream),
            Err(error) => {
                tracing::warn!(%error, "cannot move a connection to a worker");
                None
            }
        }
    }
}
