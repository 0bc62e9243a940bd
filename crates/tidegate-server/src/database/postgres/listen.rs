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
use super::connection::{AbortOnDrop, Connector, PgConnection, with_timeout};

/// Name of the notification channel.
pub(super) const CHANNEL: &str = "tidegate_config";

/// First and longest pause between attempts to connect.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);
/// Interval between checks of the connection.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// A connection that listens for notifications, opened when first needed.
#[derive(Debug)]
pub(super) struct Listener {
    connector: Arc<Connector>,
    notifications: watch::Sender<()>,
    task: Mutex<Option<AbortOnDrop>>,
}

impl Listener {
    pub(super) fn new(connector: Arc<Connector>) -> Self {
        Self { connector, notifications: watch::Sender::new(()), task: Mutex::new(None) }
    }

    /// Returns a receiver that changes whenever the settings may have changed. Must be called in a
    /// tokio runtime, which listens until the listener is dropped or the runtime ends.
    pub(super) fn notifications(&self) -> watch::Receiver<()> {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        task.take_if(|task| task.is_finished());
        task.get_or_insert_with(|| {
            let listening = keep_listening(Arc::clone(&self.connector), self.notifications.clone());
            AbortOnDrop::new(tokio::spawn(listening))
        });
        self.notifications.subscribe()
    }
}

async fn keep_listening(connector: Arc<Connector>, notifications: watch::Sender<()>) {
    let mut delay = FIRST_RETRY_DELAY;
    loop {
        let start = tokio::time::Instant::now();
        if let Err(error) = listen(&connector, &notifications).await {
            // Receivers now query the server themselves, and log its errors.
            tracing::debug!(%error, "cannot listen for database changes; will retry");
        }
        notifications.send_replace(());
        if start.elapsed() > MAX_RETRY_DELAY {
            delay = FIRST_RETRY_DELAY;
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(MAX_RETRY_DELAY);
    }
}

/// Listens until the connection breaks.
async fn listen(
    connector: &Connector,
    notifications: &watch::Sender<()>,
) -> Result<(), DatabaseError> {
    let (client, connection) = connector.connect().await?;
    let (ended, mut end) = watch::channel(());
    let sender = notifications.clone();
    let _driver = AbortOnDrop::new(tokio::spawn(async move {
        drive(connection, &sender).await;
        drop(ended);
    }));
    with_timeout(client.batch_execute(&format!("LISTEN {CHANNEL}"))).await?;
    loop {
        notifications.send_replace(());
        if tokio::time::timeout(CHECK_INTERVAL, end.changed()).await.is_ok() {
            return Ok(());
        }
        with_timeout(client.check_connection()).await?;
    }
}

/// Drives a connection, and notifies receivers of every notification.
async fn drive(mut connection: PgConnection, notifications: &watch::Sender<()>) {
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if matches!(message, AsyncMessage::Notification(_)) {
            notifications.send_replace(());
        }
    }
}
