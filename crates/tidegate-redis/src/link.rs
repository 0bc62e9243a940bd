//! The connection: made, greeted, watched and made again in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, Value};
use tokio::sync::{Notify, watch};

use crate::error::{CallError, Fault};
use crate::job::{Batch, Code, Item, Job};
use crate::names::{FORMAT, Names};
use crate::number::{Reader, put};
use crate::script::Script;

/// How long a connection may take, and how long an answer: after that the line is given up.
/// Callers wait less; see the time-out of `tidegate::Guarded`.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two tries to connect, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often a node says that it is there.
const BEAT: Duration = Duration::from_secs(2);
/// After how many silent microseconds a node is not counted any more.
const SILENCE_US: u64 = 10_000_000;

/// How it stands with the connection.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    /// The first try is under way.
    Trying,
    Down(Fault),
    Up(MultiplexedConnection),
}

/// One server, and the line to it.
#[derive(Debug)]
pub(crate) struct Link {
    client: Client,
    pub(crate) names: Names,
    pub(crate) script: Script,
    /// What this node is called among the nodes.
    node: u64,
    line: watch::Sender<Line>,
    /// Somebody found the line broken.
    broken: Notify,
    /// Nodes last seen, this one included; 0 before the first contact.
    nodes: AtomicU32,
}

impl Link {
    pub(crate) fn new(client: Client, names: Names, script: Script, node: u64) -> Self {
        Self {
            client,
            names,
            script,
            node,
            line: watch::Sender::new(Line::Trying),
            broken: Notify::new(),
            nodes: AtomicU32::new(0),
        }
    }

    /// The line as it stands.
    pub(crate) fn line(&self) -> Line {
        self.line.borrow().clone()
    }

    /// Waits for the first try to connect.
    pub(crate) async fn tried(&self) -> Result<(), Fault> {
        let mut line = self.line.subscribe();
        match line.wait_for(|line| !matches!(line, Line::Trying)).await.as_deref() {
            Ok(Line::Up(_)) => Ok(()),
            Ok(Line::Down(fault)) => Err(fault.clone()),
            _ => Err(Fault::Ended),
        }
    }

    /// Nodes last seen.
    pub(crate) fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed)
    }

    /// Carries a batch out on the line; one that turns out to be broken is made anew.
    pub(crate) async fn call(
        &self,
        connection: &mut MultiplexedConnection,
        batch: &Batch<'_>,
    ) -> Result<Value, CallError> {
        let answer = self.script.call(connection, batch).await;
        if let Err(CallError::TimedOut | CallError::Fault(Fault::Broken(_))) = answer {
            self.broken.notify_one();
        }
        answer
    }

    /// Keeps the line up, for ever.
    pub(crate) async fn keep(self: Arc<Self>) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.connect().await {
                Ok(connection) => {
                    tracing::info!("connected to the shared store");
                    self.line.send_replace(Line::Up(connection.clone()));
                    if self.watch(connection).await {
                        pause = FIRST_PAUSE;
                    }
                    tracing::warn!("the connection to the shared store broke");
                    let fault = Fault::NotConnected("the connection broke".to_owned());
                    self.line.send_replace(Line::Down(fault));
                }
                Err(fault) => {
                    let news = !matches!(*self.line.borrow(), Line::Down(_));
                    if news {
                        tracing::warn!(error = %fault, "cannot connect to the shared store");
                    }
                    self.line.send_replace(Line::Down(fault));
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Lets the nodes know of each other until the line breaks. Says whether it worked at all.
    async fn watch(&self, mut connection: MultiplexedConnection) -> bool {
        let mut worked = false;
        loop {
            if self.beat(&mut connection).await.is_err() {
                return worked;
            }
            worked = true;
            tokio::select! {
                () = tokio::time::sleep(BEAT) => {}
                () = self.broken.notified() => return worked,
            }
        }
    }

    async fn beat(&self, connection: &mut MultiplexedConnection) -> Result<(), CallError> {
        let mut item = Item { other: Some(self.names.nodes()), ..Item::default() };
        put(SILENCE_US, &mut item.tail);
        item.tail.extend(self.node.to_le_bytes());
        let jobs = [Job::new(Code::Beat).with(item)];
        let mut batch = Batch::default();
        batch.add(&jobs);
        let answer = self.script.call(connection, &batch).await;
        let Ok(replies) = crate::gather::replies(answer?) else { return Ok(()) };
        let nodes = replies.each.first().map(|reply| Reader(reply).number());
        if let Some(Ok(nodes)) = nodes {
            self.nodes.store(u32::try_from(nodes).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
        Ok(())
    }

    async fn connect(&self) -> Result<MultiplexedConnection, Fault> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let line = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = line.map_err(|error| Fault::NotConnected(error.to_string()))?;
        self.check_format(&mut connection).await?;
        self.warn_of_eviction(&mut connection).await;
        self.script.reconnected().await;
        Ok(connection)
    }

    /// Two formats under one prefix would be two sets of buckets: twice the limit.
    async fn check_format(&self, connection: &mut MultiplexedConnection) -> Result<(), Fault> {
        let refused = |error: RedisError| Fault::NotConnected(error.to_string());
        let name = self.names.format();
        let mut set = redis::cmd("SET");
        set.arg(&name).arg(FORMAT).arg("NX");
        set.exec_async(connection).await.map_err(refused)?;
        let mut get = redis::cmd("GET");
        let found: String = get.arg(&name).query_async(connection).await.map_err(refused)?;
        match found.parse() {
            Ok(FORMAT) => Ok(()),
            Ok(other) => Err(Fault::Format(other)),
            Err(_) => Err(Fault::Nonsense),
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
        Fault::Broken(error.to_string()).into()
    } else {
        Fault::Refused(error.to_string()).into()
    }
}
