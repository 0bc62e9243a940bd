//! The connection: made, greeted, watched and made again in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, Value};
use tidegate_core::hash::mix;
use tokio::sync::watch;

use crate::error::{CallError, RedisFault};
use crate::format::names::{FORMAT, Names};
use crate::job::Batch;
use crate::script::Scripts;

/// How long a connection may take, and how long an answer: after that the connection is given up.
/// Callers wait less; see the time-out of `tidegate::Guarded`.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Between two tries to connect, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The state of the connection.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionState {
    /// The first try is under way.
    Trying,
    Down(RedisFault),
    /// With the number of the connection.
    Up(MultiplexedConnection, u64),
}

/// One server, and the connection to it.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    pub(crate) names: Names,
    scripts: Scripts,
    state: watch::Sender<ConnectionState>,
    /// The number of the last connection that somebody found broken.
    broken: watch::Sender<u64>,
    /// Nodes last seen, this one included; 0 before the first contact.
    nodes: AtomicU32,
}

impl Connection {
    pub(crate) fn new(client: Client, names: Names, scripts: Scripts) -> Self {
        Self {
            client,
            names,
            scripts,
            state: watch::Sender::new(ConnectionState::Trying),
            broken: watch::Sender::new(0),
            nodes: AtomicU32::new(0),
        }
    }

    /// The state now.
    pub(crate) fn state(&self) -> ConnectionState {
        self.state.borrow().clone()
    }

    /// Waits for the first try to connect.
    pub(crate) async fn tried(&self) -> Result<(), RedisFault> {
        let mut state = self.state.subscribe();
        match state.wait_for(|state| !matches!(state, ConnectionState::Trying)).await.as_deref() {
            Ok(ConnectionState::Up(..)) => Ok(()),
            Ok(ConnectionState::Down(fault)) => Err(fault.clone()),
            _ => Err(RedisFault::Ended),
        }
    }

    /// Tells of every change of the state.
    pub(crate) fn watch(&self) -> watch::Receiver<ConnectionState> {
        self.state.subscribe()
    }

    /// Nodes last seen.
    pub(crate) fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed)
    }

    /// So many nodes have been seen.
    pub(crate) fn met(&self, nodes: u32) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    /// Gives the present connection up.
    pub(crate) fn break_up(&self) {
        if let ConnectionState::Up(_, number) = *self.state.borrow() {
            self.found_broken(number);
        }
    }

    /// A report about an older connection than the last one that broke is no news.
    fn found_broken(&self, number: u64) {
        self.broken.send_if_modified(|last| {
            let news = number > *last;
            *last = number.max(*last);
            news
        });
    }

    /// Carries a batch out; a connection that turns out to be broken is made anew.
    pub(crate) async fn call(
        &self,
        (mut connection, number): (MultiplexedConnection, u64),
        batch: &Batch<'_>,
    ) -> Result<Value, CallError> {
        let answer = self.scripts.of(batch.kind()).call(&mut connection, batch).await;
        if let Err(CallError::TimedOut | CallError::Fault(RedisFault::Broken(_))) = answer {
            self.found_broken(number);
        }
        answer
    }

    /// Keeps the connection up, for ever.
    pub(crate) async fn keep(self: Arc<Self>, seed: u64) {
        let mut pause = FIRST_PAUSE;
        for number in 1.. {
            match self.connect().await {
                Ok(connection) => {
                    tracing::info!("connected to the shared store");
                    self.state.send_replace(ConnectionState::Up(connection, number));
                    let mut broken = self.broken.subscribe();
                    // A connection that breaks at once is not tried again at once.
                    let lasted = tokio::time::timeout(
                        LONGEST_PAUSE,
                        broken.wait_for(|last| *last >= number),
                    );
                    if lasted.await.is_err() {
                        pause = FIRST_PAUSE;
                        let _ = broken.wait_for(|last| *last >= number).await;
                    }
                    tracing::warn!("the connection to the shared store broke");
                    let fault = RedisFault::NotConnected("the connection broke".to_owned());
                    self.state.send_replace(ConnectionState::Down(fault));
                }
                Err(fault) => {
                    let news = !matches!(*self.state.borrow(), ConnectionState::Down(_));
                    if news {
                        tracing::warn!(error = %fault, "cannot connect to the shared store");
                    }
                    self.state.send_replace(ConnectionState::Down(fault));
                }
            }
            // Nodes that lost their server together do not come back together.
            let part = u32::try_from(mix(seed.wrapping_add(number)) >> 62).unwrap_or(0);
            tokio::time::sleep(pause - pause / 16 * part).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisFault> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT));
        let line = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = line.map_err(|error| RedisFault::NotConnected(error.to_string()))?;
        self.check_format(&mut connection).await?;
        self.warn_of_eviction(&mut connection).await;
        self.scripts.reconnected().await;
        Ok(connection)
    }

    /// Two formats under one prefix would be two sets of buckets: twice the limit.
    async fn check_format(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisFault> {
        let refused = |error: RedisError| RedisFault::NotConnected(error.to_string());
        let name = self.names.format();
        let mut get = redis::cmd("GET");
        get.arg(name.as_bytes());
        let found: Option<String> = get.query_async(connection).await.map_err(refused)?;
        let found = match found {
            Some(found) => found,
            None => {
                let mut set = redis::cmd("SET");
                set.arg(name.as_bytes()).arg(FORMAT).arg("NX");
                set.exec_async(connection).await.map_err(refused)?;
                get.query_async(connection).await.map_err(refused)?
            }
        };
        match found.parse() {
            Ok(FORMAT) => Ok(()),
            Ok(other) => Err(RedisFault::Format(other)),
            Err(_) => Err(RedisFault::InvalidReply),
        }
    }

    /// A server that evicts live buckets gives their tokens back. It is not ours to forbid.
    async fn warn_of_eviction(&self, connection: &mut MultiplexedConnection) {
        let mut info = redis::cmd("INFO");
        let text: Result<String, RedisError> = info.arg("memory").query_async(connection).await;
        let Ok(text) = text else {
            tracing::debug!("the server does not tell its eviction policy");
            return;
        };
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().trim()
        };
        let (most, policy) = (field("maxmemory"), field("maxmemory_policy"));
        if most != "0" && !policy.is_empty() && policy != "noeviction" {
            tracing::warn!(
                maxmemory_policy = policy,
                "the shared store may evict live buckets when its memory is full, and a bucket \
                 that is gone is full again; set maxmemory-policy to noeviction"
            );
        }
    }
}

/// What a client's error means to callers. Its text holds neither address nor password.
pub(crate) fn failed(error: &RedisError) -> CallError {
    let readonly = error.code() == Some("READONLY");
    if error.is_timeout() {
        CallError::TimedOut
    } else if error.is_io_error() || error.is_unrecoverable_error() || readonly {
        RedisFault::Broken(error.to_string()).into()
    } else {
        RedisFault::Refused(error.to_string()).into()
    }
}
