//! Listens for changes made by other nodes.
//!
//! A separate connection listens for notifications. Receivers are notified when it has begun to
//! listen, so that changes made while it was down are found; at every notification; and every ten
//! seconds in case one was lost, when it also checks the connection.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_postgres::AsyncMessage;

use super::super::DatabaseError;
use super::line::{Line, Task, Wire, ask};

/// Name of the notification channel.
pub(super) const CHANNEL: &str = "tidegate_config";

/// First and longest pause between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Interval between checks of the connection.
const BEAT: Duration = Duration::from_secs(10);

/// A connection that listens for notifications, opened when first needed.
#[derive(Debug)]
pub(super) struct Listener {
    line: Arc<Line>,
    bell: watch::Sender<()>,
    task: Mutex<Option<Task>>,
}

impl Listener {
    pub(super) fn new(line: Arc<Line>) -> Self {
        Self { line, bell: watch::Sender::new(()), task: Mutex::new(None) }
    }

    /// Returns a receiver that changes whenever the settings may have changed. Must be called in a
    /// tokio runtime, which listens until the listener is dropped or the runtime ends.
    pub(super) fn bell(&self) -> watch::Receiver<()> {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        task.take_if(|task| task.has_ended());
        task.get_or_insert_with(|| {
            let keep = keep_listening(Arc::clone(&self.line), self.bell.clone());
            Task::new(tokio::spawn(keep))
        });
        self.bell.subscribe()
    }
}

async fn keep_listening(line: Arc<Line>, bell: watch::Sender<()>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let began = tokio::time::Instant::now();
        if let Err(error) = listen(&line, &bell).await {
            // Receivers now query the server themselves, and log its errors.
            tracing::debug!(%error, "cannot listen for database changes; will retry");
        }
        bell.send_replace(());
        if began.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Listens until the connection breaks.
async fn listen(line: &Line, bell: &watch::Sender<()>) -> Result<(), DatabaseError> {
    let (client, wire) = line.connect().await?;
    let (ended, mut end) = watch::channel(());
    let ring = bell.clone();
    let _carrier = Task::new(tokio::spawn(async move {
        carry(wire, &ring).await;
        drop(ended);
    }));
    ask(client.batch_execute(&format!("LISTEN {CHANNEL}"))).await?;
    loop {
        bell.send_replace(());
        if tokio::time::timeout(BEAT, end.changed()).await.is_ok() {
            return Ok(());
        }
        ask(client.check_connection()).await?;
    }
}

/// Drives a connection, and notifies receivers of every notification.
async fn carry(mut wire: Wire, bell: &watch::Sender<()>) {
    while let Some(Ok(message)) = poll_fn(|context| wire.poll_message(context)).await {
        if matches!(message, AsyncMessage::Notification(_)) {
            bell.send_replace(());
        }
    }
}
