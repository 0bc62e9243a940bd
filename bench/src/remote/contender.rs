//! The contenders, and how each sends its decisions.
//!
//! All use the same policy on the same keys in the same order: one token per second and a burst of
//! a thousand million, so that every decision is allowed and writes.

mod ours;
mod peer;

use anyhow::Result;

use super::axes::{Charges, Key};
use super::servers::Servers;

use ours::Ours;
pub(super) use ours::policy;
use peer::{Ask, Lines, Peer};

/// Microseconds per token.
const INTERVAL_US: u32 = 1_000_000;
/// Tokens in a full bucket.
const BURST: u32 = 1_000_000_000;

/// The rows of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Ours,
    /// The plain script on one connection for all callers.
    Shared,
    /// The plain script on one connection for all callers, with one call per charge.
    SharedCalls,
    /// The plain script on a connection for each caller.
    Own,
    OwnCalls,
    /// The plain script on a new connection for each decision.
    Fresh,
    FreshCalls,
    Cell,
    Floor,
}

impl Role {
    pub(super) const ALL: [Self; 9] = [
        Self::Ours,
        Self::Shared,
        Self::SharedCalls,
        Self::Own,
        Self::OwnCalls,
        Self::Fresh,
        Self::FreshCalls,
        Self::Cell,
        Self::Floor,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "tidegate-redis",
            Self::Shared => "GCRA script, one connection",
            Self::SharedCalls => "GCRA script, one connection, a call per charge",
            Self::Own => "GCRA script, a connection per caller",
            Self::OwnCalls => "GCRA script, a connection per caller, a call per charge",
            Self::Fresh => "GCRA script, a connection per decision",
            Self::FreshCalls => "GCRA script, a connection per decision, a call per charge",
            Self::Cell => "redis-cell, one connection, a call per charge",
            Self::Floor => "floor: `INCR`, one connection, a call per charge",
        }
    }

    /// Whether it has its own row: with one charge, a call per charge is equal to one call.
    pub(super) const fn measured_with(self, charges: Charges) -> bool {
        match self {
            Self::SharedCalls | Self::OwnCalls | Self::FreshCalls => {
                matches!(charges, Charges::Three)
            }
            _ => true,
        }
    }

    /// Prepares the contender for this many concurrent callers.
    pub(super) async fn enter(self, servers: &Servers, callers: usize) -> Result<Contender> {
        let script = || Ask::script(servers);
        let (lines, ask) = match self {
            Self::Ours => return Ok(Contender::Ours(Ours::open(&servers.url()).await?)),
            Self::Shared => (Lines::shared(servers, 0).await?, script().await?),
            Self::SharedCalls => (Lines::shared(servers, 0).await?, Ask::calls(servers).await?),
            Self::Own => (Lines::own(servers, callers).await?, script().await?),
            Self::OwnCalls => (Lines::own(servers, callers).await?, Ask::calls(servers).await?),
            Self::Fresh => (Lines::fresh(servers)?, script().await?),
            Self::FreshCalls => (Lines::fresh(servers)?, Ask::calls(servers).await?),
            // In separate databases, because they store other types of values.
            Self::Cell => (Lines::shared(servers, 1).await?, Ask::Cell),
            Self::Floor => (Lines::shared(servers, 2).await?, Ask::Increment),
        };
        Ok(Contender::Peer(Box::new(Peer { lines, ask })))
    }
}

/// A prepared contender. An enum instead of a trait, so that no call is boxed for the benchmark.
#[derive(Debug)]
pub(super) enum Contender {
    Ours(Ours),
    Peer(Box<Peer>),
}

/// The connection that a caller keeps between its decisions.
#[derive(Clone, Debug, Default)]
pub(super) struct CallerConnection(Option<redis::aio::MultiplexedConnection>);

impl Contender {
    /// Returns the connection of a caller.
    pub(super) fn caller_connection(&self, caller: usize) -> CallerConnection {
        match self {
            Self::Ours(_) => CallerConnection::default(),
            Self::Peer(peer) => CallerConnection(peer.lines.line(caller)),
        }
    }

    /// Makes one decision and returns whether it was allowed.
    pub(super) async fn decide(
        &self,
        caller_connection: &mut CallerConnection,
        key: &Key,
        charges: Charges,
    ) -> Result<bool> {
        match self {
            Self::Ours(ours) => ours.decide(key, charges).await,
            Self::Peer(peer) => peer.decide(caller_connection, key, charges).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::runtime::Builder;

    use super::*;
    use crate::closed_loop;
    use crate::remote::RedisCaller;
    use crate::remote::axes::{KeyDistribution, Orders, Point};

    #[test]
    fn everybody_allows_everything_asked() {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (servers, orders) = (Servers::start(), Arc::new(Orders::new()));
        // Where redis-cell is built, the benchmark itself refuses one that denies.
        for role in Role::ALL.into_iter().filter(|role| *role != Role::Cell) {
            for charges in Charges::ALL {
                let point = Point { callers: 3, charges, distribution: KeyDistribution::Hot };
                let run = runtime.block_on(async {
                    let contender = Arc::new(role.enter(&servers, point.callers).await?);
                    let callers = RedisCaller::all(&contender, point, &orders);
                    closed_loop::run(callers, Duration::ZERO, servers.server().pid()).await
                });
                let run = run.unwrap_or_else(|error| panic!("{}: {error:#}", role.name()));
                assert!(run.rate > 0.0 && run.p50 <= run.p99, "{run:?}");
            }
        }
    }
}
