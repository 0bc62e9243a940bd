//! The connection: opened, checked, monitored and reopened in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, Value};
use tidegate_core::hash::mix;
use tokio::sync::watch;

use crate::error::{CallError, RedisStoreError};
use crate::format::names::{FORMAT, Names};
use crate::job::Batch;
use crate::script::Scripts;

/// Timeout for connecting, and for a response; after that the connection is dropped. Callers wait
/// less; see the timeout of `tidegate::guard::GuardedStore`.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Initial and maximum delay between two connection attempts.
const INITIAL_DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_secs(2);

/// State of the connection.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionState {
    /// The first attempt is in progress.
    Connecting,
    Down(RedisStoreError),
    /// Connected, with the number of the connection.
    Up(MultiplexedConnection, u64),
}

/// One server, and the connection to it.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    pub(crate) names: Names,
    scripts: Scripts,
    state: watch::Sender<ConnectionState>,
    /// Number of the last connection that was found broken.
    broken: watch::Sender<u64>,
    /// Number of nodes last seen, including this one; 0 before the first heartbeat.
    nodes: AtomicU32,
}

impl Connection {
    pub(crate) fn new(client: Client, names: Names, scripts: Scripts) -> Self {
        Self {
            client,
            names,
            scripts,
            state: watch::Sender::new(ConnectionState::Connecting),
            broken: watch::Sender::new(0),
            nodes: AtomicU32::new(0),
        }
    }

    /// Returns the current state.
    pub(crate) fn state(&self) -> ConnectionState {
        self.state.borrow().clone()
    }

    /// Waits for the first connection attempt.
    pub(crate) async fn first_attempt(&self) -> Result<(), RedisStoreError> {
        let mut state = self.state.subscribe();
        match state.wait_for(|state| !matches!(state, ConnectionState::Connecting)).await.as_deref()
        {
            Ok(ConnectionState::Up(..)) => Ok(()),
            Ok(ConnectionState::Down(error)) => Err(error.clone()),
            _ => Err(RedisStoreError::RuntimeEnded),
        }
    }

    /// Returns a receiver of state changes.
    pub(crate) fn watch(&self) -> watch::Receiver<ConnectionState> {
        self.state.subscribe()
    }

    /// Returns the number of nodes last seen.
    pub(crate) fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed)
    }

    /// Sets the number of nodes last seen.
    pub(crate) fn set_nodes(&self, nodes: u32) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    /// Drops the current connection.
    pub(crate) fn drop_connection(&self) {
        if let ConnectionState::Up(_, number) = *self.state.borrow() {
            self.mark_broken(number);
        }
    }

    /// Records a broken connection. Reports about older connections are ignored.
    fn mark_broken(&self, number: u64) {
        self.broken.send_if_modified(|last| {
            let is_new = number > *last;
            *last = number.max(*last);
            is_new
        });
    }

    /// Executes a batch; a broken connection is reopened.
    pub(crate) async fn call(
        &self,
        (mut connection, number): (MultiplexedConnection, u64),
        batch: &Batch<'_>,
    ) -> Result<Value, CallError> {
        let result = self.scripts.of(batch.kind()).call(&mut connection, batch).await;
        if let Err(CallError::TimedOut | CallError::Fault(RedisStoreError::ConnectionLost(_))) =
            result
        {
            self.mark_broken(number);
        }
        result
    }

    /// Keeps the connection open, forever.
    pub(crate) async fn run(self: Arc<Self>, seed: u64) {
        let mut delay = INITIAL_DELAY;
        for number in 1.. {
            match self.connect().await {
                Ok(connection) => {
                    tracing::info!("connected to the shared store");
                    self.state.send_replace(ConnectionState::Up(connection, number));
                    let mut broken = self.broken.subscribe();
                    // A connection that breaks immediately must not reset the delay.
                    let broke_early =
                        tokio::time::timeout(MAX_DELAY, broken.wait_for(|last| *last >= number));
                    if broke_early.await.is_err() {
                        delay = INITIAL_DELAY;
                        let _ = broken.wait_for(|last| *last >= number).await;
                    }
                    tracing::warn!("connection to the shared store lost; reconnecting");
                    let error = RedisStoreError::NotConnected("the connection was lost".to_owned());
                    self.state.send_replace(ConnectionState::Down(error));
                }
                Err(error) => {
                    let is_new = !matches!(*self.state.borrow(), ConnectionState::Down(_));
                    if is_new {
                        tracing::warn!(%error, "cannot connect to the shared store; retrying");
                    }
                    self.state.send_replace(ConnectionState::Down(error));
                }
            }
            // Jitter, so that nodes that lost their server together do not reconnect together.
            let quarter = u32::try_from(mix(seed.wrapping_add(number)) >> 62).unwrap_or(0);
            tokio::time::sleep(delay - delay / 16 * quarter).await;
            delay = (delay * 2).min(MAX_DELAY);
        }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisStoreError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT));
        let opened = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection =
            opened.map_err(|error| RedisStoreError::NotConnected(error.to_string()))?;
        self.check_format(&mut connection).await?;
        self.warn_about_eviction(&mut connection).await;
        self.scripts.reset().await;
        Ok(connection)
    }

    /// Two formats under one prefix would mean two sets of buckets: twice the limit.
    async fn check_format(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), RedisStoreError> {
        let not_connected = |error: RedisError| RedisStoreError::NotConnected(error.to_string());
        let name = self.names.format();
        let mut get = redis::cmd("GET");
        get.arg(name.as_bytes());
        let found: Option<String> = get.query_async(connection).await.map_err(not_connected)?;
        let found = match found {
            Some(found) => found,
            None => {
                let mut set = redis::cmd("SET");
                set.arg(name.as_bytes()).arg(FORMAT).arg("NX");
                set.exec_async(connection).await.map_err(not_connected)?;
                get.query_async(connection).await.map_err(not_connected)?
            }
        };
        match found.parse() {
            Ok(FORMAT) => Ok(()),
            Ok(other) => Err(RedisStoreError::Format(other)),
            Err(_) => Err(RedisStoreError::InvalidReply),
        }
    }

    /// Warns about eviction, which gives tokens back. The store cannot prevent it.
    async fn warn_about_eviction(&self, connection: &mut MultiplexedConnection) {
        let mut info = redis::cmd("INFO");
        let text: Result<String, RedisError> = info.arg("memory").query_async(connection).await;
        let Ok(text) = text else {
            tracing::debug!("eviction policy of the shared store unknown");
            return;
        };
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.unwrap_or_default().trim()
        };
        let (max_memory, policy) = (field("maxmemory"), field("maxmemory_policy"));
        if max_memory != "0" && !policy.is_empty() && policy != "noeviction" {
            tracing::warn!(
                maxmemory_policy = policy,
                "shared store may evict buckets, and an evicted bucket is full again; set \
                 maxmemory-policy to noeviction"
            );
        }
    }
}

/// Classifies an error of the client. Its text contains neither address nor password.
pub(crate) fn classify_error(error: &RedisError) -> CallError {
    let readonly = error.code() == Some("READONLY");
    if error.is_timeout() {
        CallError::TimedOut
    } else if error.is_io_error() || error.is_unrecoverable_error() || readonly {
        RedisStoreError::ConnectionLost(error.to_string()).into()
    } else {
        RedisStoreError::Refused(error.to_string()).into()
    }
}
