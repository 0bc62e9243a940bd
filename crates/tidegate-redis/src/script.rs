//! The script, by its hash: loaded once, and once more when the server has forgotten it.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::sync::Mutex;

use crate::connection::failed;
use crate::error::{CallError, RedisFault};
use crate::job::{Batch, Kind};

/// The line of the script that reads the server's clock.
#[cfg(feature = "manual-clock")]
const CLOCK_LINE: &str = "redis.call('TIME')";

/// The parts of the long script, in order; together they are one chunk.
const LONG: &str = concat!(
    include_str!("script/head.lua"),
    include_str!("script/entries.lua"),
    include_str!("script/tariffs.lua"),
    include_str!("script/slots.lua"),
    include_str!("script/decide.lua"),
    include_str!("script/settle.lua"),
    include_str!("script/operations.lua"),
);

/// The short script: a long one makes its functions anew with every call, and most calls need none.
const SHORT: &str = include_str!("script/plain.lua");

/// Both scripts.
#[derive(Debug)]
pub(crate) struct Scripts {
    long: Script,
    short: Script,
}

impl Scripts {
    /// The scripts, with the clock of the server.
    pub(crate) fn new() -> Self {
        Self::with(str::to_owned)
    }

    /// The scripts with a clock that a test sets: seconds and microseconds in a list of the server.
    #[cfg(feature = "manual-clock")]
    pub(crate) fn with_clock_in(list: &str) -> Self {
        let clock = format!("redis.call('LRANGE', '{list}', 0, 1)");
        Self::with(|source| {
            assert_eq!(source.matches(CLOCK_LINE).count(), 1, "a script reads the clock once");
            source.replace(CLOCK_LINE, &clock)
        })
    }

    fn with(source: impl Fn(&str) -> String) -> Self {
        Self { long: Script::from_source(source(LONG)), short: Script::from_source(source(SHORT)) }
    }

    /// The script for a kind of call.
    pub(crate) fn of(&self, kind: Kind) -> &Script {
        match kind {
            Kind::Plain => &self.short,
            Kind::Any => &self.long,
        }
    }

    /// Forgets what was known of the server: it may be another one.
    pub(crate) async fn reconnected(&self) {
        for script in [&self.long, &self.short] {
            *script.copy.lock().await = Copy::Missing;
        }
    }
}

/// A script and what is known of the server's copy.
#[derive(Debug)]
pub(crate) struct Script {
    source: String,
    hash: String,
    copy: Mutex<Copy>,
}

/// The server's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    /// Nobody has looked yet, or the last try failed: the next call loads it.
    Missing,
    /// Loaded so many times.
    Loaded(u64),
    /// `SCRIPT LOAD` is not permitted: the source goes with a call that finds no script.
    Forbidden,
}

impl Script {
    fn from_source(source: String) -> Self {
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self { source, hash, copy: Mutex::new(Copy::Missing) }
    }

    /// Carries a batch out. Only a call that the server has not carried out for want of the script
    /// is sent again, once.
    pub(crate) async fn call(
        &self,
        connection: &mut MultiplexedConnection,
        batch: &Batch<'_>,
    ) -> Result<Value, CallError> {
        let copy = self.load(connection, None).await?;
        match self.send(connection, batch.command("EVALSHA", &self.hash)).await {
            Err(Sent::NoScript) => {}
            other => return other.map_err(Sent::into_call_error),
        }
        let again = match self.load(connection, Some(copy)).await? {
            // The server keeps a script that it was sent as well.
            Copy::Forbidden => batch.command("EVAL", &self.source),
            _ => batch.command("EVALSHA", &self.hash),
        };
        self.send(connection, again).await.map_err(Sent::into_call_error)
    }

    /// Makes sure that the server has the script. Callers at the same time share one load; `lost`
    /// is the copy that turned out to be gone.
    async fn load(
        &self,
        connection: &mut MultiplexedConnection,
        lost: Option<Copy>,
    ) -> Result<Copy, CallError> {
        let mut copy = self.copy.lock().await;
        let known = *copy != Copy::Missing && Some(*copy) != lost;
        if known || *copy == Copy::Forbidden {
            return Ok(*copy);
        }
        let times = match lost {
            Some(Copy::Loaded(times)) => times,
            _ => 0,
        };
        *copy = Copy::Missing;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.source);
        match connection.send_packed_command(&load).await.and_then(Value::extract_error) {
            Ok(_) => *copy = Copy::Loaded(times + 1),
            Err(error) if is_forbidden(&error) => *copy = Copy::Forbidden,
            Err(error) => return Err(failed(&error)),
        }
        Ok(*copy)
    }

    async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        command: Cmd,
    ) -> Result<Value, Sent> {
        match connection.send_packed_command(&command).await.and_then(Value::extract_error) {
            Ok(value) => Ok(value),
            Err(error) if error.code() == Some("NOSCRIPT") => Err(Sent::NoScript),
            Err(error) => Err(Sent::Failed(failed(&error))),
        }
    }
}

/// Whether scripts cannot be loaded at all: not permitted, or the command was taken away.
fn is_forbidden(error: &RedisError) -> bool {
    let unknown = |detail: &str| detail.contains("unknown command");
    error.code() == Some("NOPERM") || error.detail().is_some_and(unknown)
}

/// How sending a batch failed.
#[derive(Debug)]
enum Sent {
    NoScript,
    Failed(CallError),
}

impl Sent {
    fn into_call_error(self) -> CallError {
        match self {
            Self::NoScript => RedisFault::ScriptLost.into(),
            Self::Failed(error) => error,
        }
    }
}
