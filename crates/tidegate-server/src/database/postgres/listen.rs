//! Hears of changes that other nodes make.
//!
//! A connection of its own listens. It rings after it has begun to listen, so nothing is missed
//! that happened while there was none; at every notice; and, in case a notice got lost on the way,
//! every ten seconds, when it also looks whether the server is still there.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_postgres::AsyncMessage;

use super::super::DatabaseError;
use super::line::{Line, Task, Wire, ask};

/// What is listened to, and told by whoever writes.
pub(super) const CHANNEL: &str = "tidegate_config";

/// Between two tries to connect, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Between two looks at the server.
const BEAT: Duration = Duration::from_secs(10);

/// One connection that listens, from the first time that somebody wants to know.
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

    /// Rings whenever something may have changed. To be called in a runtime, which then listens
    /// until the listener is dropped, or the runtime ends.
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
            // Those who wait ask the server by themselves now, and tell what they find.
            tracing::debug!(%error, "not listening to the database");
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

/// Carries the bytes of a connection, and rings at every notice in them.
async fn carry(mut wire: Wire, bell: &watch::Sender<()>) {
    while let Some(Ok(message)) = poll_fn(|context| wire.poll_message(context)).await {
        if matches!(message, AsyncMessage::Notification(_)) {
            bell.send_replace(());
        }
    }
}
