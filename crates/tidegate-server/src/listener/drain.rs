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

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// Drains a task that takes `duration` after the signal, in virtual time.
    async fn drain(duration: Duration) -> (Drained, Duration) {
        let mut drain = Drain::new();
        let stop = drain.signal();
        drain.spawn(async move {
            stop.wait().await;
            tokio::time::sleep(duration).await;
        });
        let start = Instant::now();
        (drain.drain(SHUTDOWN_GRACE).await, start.elapsed())
    }

    #[test]
    fn the_bound_is_documented() {
        let page = include_str!("../../../../docs/install.md");
        let text = format!("requests in progress get {} s to complete", SHUTDOWN_GRACE.as_secs());
        assert!(page.contains(&text), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_in_flight_delay_the_shutdown_up_to_the_bound() {
        let second = Duration::from_secs(1);
        assert_eq!(drain(second).await, (Drained::Complete, second));
        assert_eq!(drain(100 * second).await, (Drained::CutOff, SHUTDOWN_GRACE));
    }
}
