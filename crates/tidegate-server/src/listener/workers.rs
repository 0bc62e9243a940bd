//! Threads that serve connections, each with a runtime of its own.
//!
//! A connection stays on its thread, and so do the calls to providers that it makes: nothing that a
//! request does has to wake another thread, which costs more than most decisions. Connections are
//! dealt out in turn.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// More threads than this serve nobody better.
const MOST: usize = 64;

/// The threads. They end when this is dropped, and cut what they still serve.
#[derive(Debug)]
pub(crate) struct Workers {
    handles: Vec<Handle>,
    next: AtomicUsize,
    /// Dropped to end the threads.
    _alive: Vec<oneshot::Sender<()>>,
}

impl Workers {
    /// As many as the machine runs at once.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn start() -> io::Result<Self> {
        let many = thread::available_parallelism().map_or(1, usize::from).min(MOST);
        let (mut handles, mut alive) = (Vec::new(), Vec::new());
        for _ in 0..many {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (sender, ended) = oneshot::channel::<()>();
            handles.push(runtime.handle().clone());
            alive.push(sender);
            thread::Builder::new().name("tidegate-worker".to_owned()).spawn(move || {
                // An error means that the sender is gone, which is what is waited for.
                let _ = runtime.block_on(ended);
                runtime.shutdown_background();
            })?;
        }
        Ok(Self { handles, next: AtomicUsize::new(0), _alive: alive })
    }

    /// No threads of their own: connections are served by the runtime that this is called in.
    pub(crate) fn here() -> Self {
        Self { handles: vec![Handle::current()], next: AtomicUsize::new(0), _alive: Vec::new() }
    }

    /// Whose turn it is.
    pub(crate) fn next(&self) -> &Handle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        // There is at least one.
        &self.handles[turn % self.handles.len()]
    }
}

/// A connection that was accepted by one runtime and is served by another.
#[derive(Debug)]
pub(crate) struct Moved(io::Result<std::net::TcpStream>);

impl Moved {
    /// Takes a connection out of the runtime that accepted it.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(stream.into_std())
    }

    /// The connection, in the runtime that this is called in. That it cannot be served there is
    /// logged.
    pub(crate) fn arrive(self) -> Option<TcpStream> {
        match self.0.and_then(TcpStream::from_std) {
            Ok(stream) => Some(stream),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be served");
                None
            }
        }
    }
}
