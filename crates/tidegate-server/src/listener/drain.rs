//! Stopping: no new connections, requests under way are answered, and not longer than a while.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long requests under way may take once the server is told to stop. Answers of providers that
/// come in pieces take their time; whoever runs containers kills after 30 seconds.
pub const GRACE: Duration = Duration::from_secs(25);

/// How stopping went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drained {
    /// Every request was answered.
    Complete,
    /// Connections were still busy after [`GRACE`], and are cut.
    CutOff,
}

/// Knows when to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Whether it is time to stop.
    pub(crate) fn is_told(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Ready once it is time to stop.
    pub(crate) async fn told(mut self) {
        // An error means that the sender is gone, which is as good as being told.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// Tells the doors to stop and waits for them.
#[derive(Debug)]
pub(crate) struct Drain {
    stop: watch::Sender<bool>,
    doors: Vec<JoinHandle<()>>,
}

impl Drain {
    pub(crate) fn new() -> Self {
        Self { stop: watch::Sender::new(false), doors: Vec::new() }
    }

    /// What the doors are told to stop by.
    pub(crate) fn signal(&self) -> Stop {
        Stop(self.stop.subscribe())
    }

    /// Adds a door, running.
    pub(crate) fn watch(&mut self, door: impl Future<Output = ()> + Send + 'static) {
        self.doors.push(tokio::spawn(door));
    }

    pub(crate) async fn drain(self, grace: Duration) -> Drained {
        self.stop.send_replace(true);
        let mut doors = self.doors;
        let all = async {
            for door in &mut doors {
                if let Err(error) = door.await {
                    tracing::error!(%error, "a door ended badly");
                }
            }
        };
        if tokio::time::timeout(grace, all).await.is_ok() {
            return Drained::Complete;
        }
        for door in &doors {
            door.abort();
        }
        Drained::CutOff
    }
}
