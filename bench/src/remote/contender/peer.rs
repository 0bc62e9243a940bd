//! The peers: hand-written scripts on the same client, without a rate limiting library.
//!
//! Connections have `TCP_NODELAY` and no response timeout, which would cost a timer per call.

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, cmd};

use super::{BURST, CallerConnection, INTERVAL_US};
use crate::remote::axes::{Charges, Key};
use crate::remote::servers::Servers;

#[derive(Debug)]
pub(in crate::remote) struct Peer {
    pub(super) lines: Lines,
    pub(super) ask: Ask,
}

/// How callers share connections.
#[derive(Debug)]
pub(super) enum Lines {
    /// All callers share one, pipelined.
    Shared(MultiplexedConnection),
    /// Each caller has its own.
    Own(Vec<MultiplexedConnection>),
    /// Each decision opens a new one.
    Fresh(Client),
}

/// The commands of a decision.
#[derive(Debug)]
pub(super) enum Ask {
    /// The script for one key or for several.
    Script { one: String, several: String },
    /// The script for one key per charge, pipelined, without an all-or-nothing guarantee.
    Calls { one: String },
    /// `CL.THROTTLE` for each charge, pipelined.
    Cell,
    /// `INCR` for each charge, pipelined, without a decision.
    Increment,
}

impl Lines {
    pub(super) async fn shared(servers: &Servers, database: u8) -> Result<Self> {
        Ok(Self::Shared(connect(&servers.client(database)?).await?))
    }

    pub(super) async fn own(servers: &Servers, callers: usize) -> Result<Self> {
        let client = servers.client(0)?;
        let mut all = Vec::with_capacity(callers);
        for _ in 0..callers {
            all.push(connect(&client).await?);
        }
        Ok(Self::Own(all))
    }

    pub(super) fn fresh(servers: &Servers) -> Result<Self> {
        Ok(Self::Fresh(servers.client(0)?))
    }

    /// The connection that a caller keeps.
    pub(super) fn line(&self, caller: usize) -> Option<MultiplexedConnection> {
        match self {
            Self::Shared(line) => Some(line.clone()),
            Self::Own(lines) => lines.get(caller).cloned(),
            Self::Fresh(_) => None,
        }
    }
}

impl Ask {
    pub(super) async fn script(servers: &Servers) -> Result<Self> {
        let several = load(servers, include_str!("../gcra_all.lua")).await?;
        Ok(Self::Script { one: load(servers, include_str!("../gcra.lua")).await?, several })
    }

    pub(super) async fn calls(servers: &Servers) -> Result<Self> {
        Ok(Self::Calls { one: load(servers, include_str!("../gcra.lua")).await? })
    }

    fn command(&self, name: &str) -> Cmd {
        match self {
            Self::Script { one, .. } | Self::Calls { one } => evaluate(one, &[name]),
            Self::Cell => {
                let mut command = cmd("CL.THROTTLE");
                command.arg(name).arg(BURST - 1).arg(1).arg(INTERVAL_US / 1_000_000).arg(1);
                command
            }
            Self::Increment => {
                let mut command = cmd("INCR");
                command.arg(name);
                command
            }
        }
    }

    /// Whether the reply for one charge means allowed.
    fn is_yes(&self, answer: &[i64]) -> bool {
        match self {
            Self::Script { .. } | Self::Calls { .. } => answer.first() == Some(&1),
            Self::Cell => answer.first() == Some(&0),
            Self::Increment => true,
        }
    }
}

impl Peer {
    pub(super) async fn decide(
        &self,
        caller_connection: &mut CallerConnection,
        key: &Key,
        charges: Charges,
    ) -> Result<bool> {
        let mut fresh = None;
        let line = match (&mut caller_connection.0, &self.lines) {
            (Some(line), _) => line,
            (None, Lines::Shared(line)) => fresh.insert(line.clone()),
            (None, Lines::Own(_)) => anyhow::bail!("more callers than connections"),
            (None, Lines::Fresh(client)) => fresh.insert(connect(client).await?),
        };
        let names = key.names(charges);
        match (names, &self.ask) {
            ([name], ask) => answer(ask, &ask.command(name), line).await,
            (names, Ask::Script { several, .. }) => {
                answer(&self.ask, &evaluate(several, names), line).await
            }
            (names, ask) => {
                let mut pipeline = Pipeline::with_capacity(names.len());
                for name in names {
                    pipeline.add_command(ask.command(name));
                }
                each_answer(ask, &pipeline, line).await
            }
        }
    }
}

async fn answer(ask: &Ask, command: &Cmd, line: &mut MultiplexedConnection) -> Result<bool> {
    if matches!(ask, Ask::Increment) {
        let count: i64 = command.query_async(line).await?;
        return Ok(ask.is_yes(&[count]));
    }
    let numbers: Vec<i64> = command.query_async(line).await?;
    Ok(ask.is_yes(&numbers))
}

async fn each_answer(
    ask: &Ask,
    pipeline: &Pipeline,
    line: &mut MultiplexedConnection,
) -> Result<bool> {
    if matches!(ask, Ask::Increment) {
        let counts: Vec<i64> = pipeline.query_async(line).await?;
        return Ok(ask.is_yes(&counts));
    }
    let answers: Vec<Vec<i64>> = pipeline.query_async(line).await?;
    Ok(answers.iter().all(|numbers| ask.is_yes(numbers)))
}

fn evaluate<S: AsRef<str>>(hash: &str, names: &[S]) -> Cmd {
    let mut command = cmd("EVALSHA");
    command.arg(hash).arg(names.len());
    for name in names {
        command.arg(name.as_ref());
    }
    for _ in names {
        command.arg(INTERVAL_US).arg(BURST);
    }
    command
}

async fn connect(client: &Client) -> Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

async fn load(servers: &Servers, script: &str) -> Result<String> {
    let mut line = connect(&servers.client(0)?).await?;
    Ok(cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut line).await?)
}
