//! The scripts, called by their hash: loaded once, and again if the server has lost them.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::sync::Mutex;

use crate::connection::classify_error;
use crate::error::{CallError, RedisStoreError};
use crate::job::{Batch, ScriptKind};

/// The code in the script that reads the server's clock.
#[cfg(feature = "manual-clock")]
const CLOCK_CALL: &str = "redis.call('TIME')";

/// The parts of the long script, in order; together they form one chunk.
const LONG: &str = concat!(
    include_str!("script/head.lua"),
    include_str!("script/entries.lua"),
    include_str!("script/policy_args.lua"),
    include_str!("script/slots.lua"),
    include_str!("script/decide.lua"),
    include_str!("script/settle.lua"),
    include_str!("script/operations.lua"),
);

/// The short script: a long one creates its functions anew with every call, and most calls need
/// none.
const SHORT: &str = include_str!("script/short.lua");

/// Both scripts.
#[derive(Debug)]
pub(crate) struct Scripts {
    long: Script,
    short: Script,
}

impl Scripts {
    /// Creates the scripts with the clock of the server.
    pub(crate) fn new() -> Self {
        Self::with(str::to_owned)
    }

    /// Creates the scripts with a test clock: seconds and microseconds in a list on the server.
    #[cfg(feature = "manual-clock")]
    pub(crate) fn with_clock_in(list: &str) -> Self {
        let clock = format!("redis.call('LRANGE', '{list}', 0, 1)");
        Self::with(|source| {
            assert_eq!(source.matches(CLOCK_CALL).count(), 1, "a script reads the clock once");
            source.replace(CLOCK_CALL, &clock)
        })
    }

    fn with(source: impl Fn(&str) -> String) -> Self {
        Self { long: Script::from_source(source(LONG)), short: Script::from_source(source(SHORT)) }
    }

    /// Returns the script for a kind of call.
    pub(crate) fn of(&self, kind: ScriptKind) -> &Script {
        match kind {
            ScriptKind::Short => &self.short,
            ScriptKind::Long => &self.long,
        }
    }

    /// Resets what is known about the server after a reconnect: it may be a different one.
    pub(crate) async fn reset(&self) {
        for script in [&self.long, &self.short] {
            *script.copy.lock().await = ServerCopy::Missing;
        }
    }
}

/// A script, and what is known about its copy on the server.
#[derive(Debug)]
pub(crate) struct Script {
    source: String,
    hash: String,
    copy: Mutex<ServerCopy>,
}

/// State of the copy on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerCopy {
    /// Unknown, or the last attempt failed: the next call loads it.
    Missing,
    /// Loaded this many times.
    Loaded(u64),
    /// `SCRIPT LOAD` is not permitted: the source is sent with a call that finds no script.
    Forbidden,
}

impl Script {
    fn from_source(source: String) -> Self {
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self { source, hash, copy: Mutex::new(ServerCopy::Missing) }
    }

    /// Executes a batch. A call is sent again, once, only if the server did not execute it for lack
    /// of the script.
    pub(crate) async fn call(
        &self,
        connection: &mut MultiplexedConnection,
        batch: &Batch<'_>,
    ) -> Result<Value, CallError> {
        let copy = self.load(connection, None).await?;
        match self.send(connection, batch.command("EVALSHA", &self.hash)).await {
            Err(SendError::NoScript) => {}
            other => return other.map_err(SendError::into_call_error),
        }
        let again = match self.load(connection, Some(copy)).await? {
            // The server also caches a script sent with `EVAL`.
            ServerCopy::Forbidden => batch.command("EVAL", &self.source),
            _ => batch.command("EVALSHA", &self.hash),
        };
        self.send(connection, again).await.map_err(SendError::into_call_error)
    }

    /// Makes sure that the server has the script. Concurrent callers share one load; `lost` is the
    /// copy that turned out to be missing.
    async fn load(
        &self,
        connection: &mut MultiplexedConnection,
        lost: Option<ServerCopy>,
    ) -> Result<ServerCopy, CallError> {
        let mut copy = self.copy.lock().await;
        let known = *copy != ServerCopy::Missing && Some(*copy) != lost;
        if known || *copy == ServerCopy::Forbidden {
            return Ok(*copy);
        }
        let loads = match lost {
            Some(ServerCopy::Loaded(loads)) => loads,
            _ => 0,
        };
        *copy = ServerCopy::Missing;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.source);
        match connection.send_packed_command(&load).await.and_then(Value::extract_error) {
            Ok(_) => *copy = ServerCopy::Loaded(loads + 1),
            Err(error) if is_forbidden(&error) => *copy = ServerCopy::Forbidden,
            Err(error) => return Err(classify_error(&error)),
        }
        Ok(*copy)
    }

    async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        command: Cmd,
    ) -> Result<Value, SendError> {
        match connection.send_packed_command(&command).await.and_then(Value::extract_error) {
            Ok(value) => Ok(value),
            Err(error) if error.code() == Some("NOSCRIPT") => Err(SendError::NoScript),
            Err(error) => Err(SendError::Failed(classify_error(&error))),
        }
    }
}

/// Returns whether scripts cannot be loaded at all: not permitted, or the command is disabled.
fn is_forbidden(error: &RedisError) -> bool {
    let unknown = |detail: &str| detail.contains("unknown command");
    error.code() == Some("NOPERM") || error.detail().is_some_and(unknown)
}

/// How sending a batch failed.
#[derive(Debug)]
enum SendError {
    NoScript,
    Failed(CallError),
}

impl SendError {
    fn into_call_error(self) -> CallError {
        match self {
            Self::NoScript => RedisStoreError::ScriptLost.into(),
            Self::Failed(error) => error,
        }
    }
}
