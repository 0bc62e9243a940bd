//! Graceful shutdown: no new connections, and a bounded time for requests in flight.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long requests in flight may take after the server is told to stop. Streamed responses of
/// providers take time, and container runtimes usually kill after 30 seconds.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(25);

/// Result of a graceful shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drained {
    /// Every request was answered in time.
    Complete,
    /// Connections were still busy after [`SHUTDOWN_GRACE`] and were closed.
    CutOff,
}

/// Signals a task to stop. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// Returns whether the task should stop.
    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits until the task should stop.
    pub(crate) async fn wait(mut self) {
        // An error means that the sender is gone, which counts as the signal.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// Stops a group of tasks and waits for them.
#[derive(Debug)]
pub(crate) struct Drain {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drain {
    pub(crate) fn new() -> Self {
        Self { stop: watch::Sender::new(false), tasks: Vec::new() }
    }

    /// Returns the signal that asks the tasks to stop.
    pub(crate) fn signal(&self) -> StopSignal {
        StopSignal(self.stop.subscribe())
    }

    /// Spawns a task that [`drain`](Self::drain) waits for.
    pub(crate) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(tokio::spawn(task));
    }

    pub(crate) async fn drain(self, grace: Duration) -> Drained {
        self.stop.send_replace(true);
        let mut tasks = self.tasks;
        let all = async {
            for task in &mut tasks {
                if let Err(error) = task.await {
                    tracing::error!(%error, "task failed");
                }
            }
        };
        if tokio::time::timeout(grace, all).await.is_ok() {
            return Drained::Complete;
        }
        for task in &tasks {
            task.abort();
        }
        Drained::CutOff
    }
}
