//! Latency during an outage of the server, with a guarded store.
//!
//! Callers loop with a short pause. Without it they would saturate the cores as soon as decisions
//! need no server, and the scheduler would be measured.

mod exact;
mod log;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tidegate::guard::GuardedStore;
use tidegate::{FailureRule, Store as _};
use tidegate_core::{Charge, Limit, Operation, StoreResponse, StoreResponses};
use tidegate_redis::RedisStore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::axes::{KeyDistribution, Orders};
use super::contender::policy;
use super::servers::Servers;
use crate::stopwatch::Stopwatch;

pub(super) use exact::{CAPACITY, TAKES};
use log::{Entry, Moments};
pub(super) use log::{OutageLog, Phase};

/// Number of callers.
pub(super) const CALLERS: usize = 50;
/// Pause between two decisions of a caller.
const PAUSE: Duration = Duration::from_millis(1);
/// Timeout of a store call.
pub(super) const TIMEOUT: Duration = Duration::from_millis(50);
/// Timeout for the recovery of a guard.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// The kind of outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    /// SIGKILL, and a restart with an empty server.
    Killed,
    /// SIGSTOP and SIGCONT: connections stay open without responses.
    Frozen,
}

/// Duration of each phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script {
    pub(super) before: Duration,
    pub(super) away: Duration,
    pub(super) after: Duration,
    pub(super) repeats: usize,
}

impl Scenario {
    pub(super) const ALL: [Self; 2] = [Self::Killed, Self::Frozen];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed, started again",
            Self::Frozen => "stopped, continued",
        }
    }

    fn lose(self, servers: &Servers) {
        match self {
            Self::Killed => servers.server().kill(),
            Self::Frozen => servers.server().stop(),
        }
    }

    /// Restores the server and waits until it responds.
    fn bring_back(self, servers: &Servers) {
        match self {
            Self::Killed => servers.server().restart(),
            Self::Frozen => {
                servers.server().cont();
                let _ = servers.server().command(&["PING"]);
            }
        }
    }
}

/// Repeats the outage, each time with a new guard.
pub(super) async fn run(
    scenario: Scenario,
    script: Script,
    servers: &Arc<Servers>,
    orders: &Arc<Orders>,
) -> Result<OutageLog> {
    let mut log = OutageLog::default();
    let (mut repeats, mut retries) = (0, script.repeats);
    while repeats < script.repeats {
        let guarded = guard(servers).await?;
        let (entries, moments) = once(scenario, script, servers, orders, &guarded).await?;
        // Results are meaningless if a healthy server does not respond in time.
        if retries > 0 && moments.were_disturbed(&entries) {
            retries -= 1;
            continue;
        }
        repeats += 1;
        log.add(entries, moments, guarded.stats());
        let other = guard(servers).await?;
        let exact = timeout(RECOVERY_TIMEOUT, exact::is_exact(&guarded, &other)).await;
        log.exact &= exact.context("decisions are not shared after the outage")??;
    }
    Ok(log)
}

/// A node: a store with one connection, under a guard.
async fn guard(servers: &Servers) -> Result<GuardedStore> {
    let store = RedisStore::builder(&servers.url()).open()?;
    store.connected().await?;
    let builder = GuardedStore::builder(Arc::new(store)).timeout(TIMEOUT);
    Ok(builder.default_rule(FailureRule::Local).build()?)
}

async fn once(
    scenario: Scenario,
    script: Script,
    servers: &Arc<Servers>,
    orders: &Arc<Orders>,
    guarded: &GuardedStore,
) -> Result<(Vec<Entry>, Moments)> {
    let (stopwatch, over) = (Stopwatch::start(), Arc::new(AtomicBool::new(false)));
    let limit = Limit::named("client", policy()?)?;
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let caller = Caller { guarded: guarded.clone(), limit: limit.clone(), caller, stopwatch };
        callers.spawn(caller.ask(orders.clone(), over.clone()));
    }
    sleep(script.before).await;
    let lost = stopwatch.elapsed();
    off_the_runtime(servers, move |servers| scenario.lose(servers)).await?;
    sleep(script.away).await;
    off_the_runtime(servers, move |servers| scenario.bring_back(servers)).await?;
    let back = stopwatch.elapsed();
    let found = async {
        while !guarded.is_up() {
            sleep(PAUSE).await;
        }
    };
    timeout(RECOVERY_TIMEOUT, found).await.context("the guard did not recover")?;
    sleep(script.after).await;
    over.store(true, Ordering::Relaxed);
    let mut entries = Vec::new();
    while let Some(result) = callers.join_next().await {
        entries.extend(result.context("a caller of the benchmark panicked")??);
    }
    Ok((entries, Moments { lost, back }))
}

/// Runs blocking work on another thread, so that callers are not delayed.
async fn off_the_runtime(
    servers: &Arc<Servers>,
    act: impl FnOnce(&Servers) + Send + 'static,
) -> Result<()> {
    let servers = servers.clone();
    Ok(spawn_blocking(move || act(&servers)).await?)
}

struct Caller {
    guarded: GuardedStore,
    limit: Limit,
    caller: usize,
    stopwatch: Stopwatch,
}

impl Caller {
    async fn ask(self, orders: Arc<Orders>, over: Arc<AtomicBool>) -> Result<Vec<Entry>> {
        let mut entries = Vec::with_capacity(4_096);
        let mut answers = StoreResponses::new();
        for key in orders.of(KeyDistribution::Many, self.caller) {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let charges = [Charge::new(&self.limit, key.name(), 1)];
            let asked = self.stopwatch.elapsed();
            self.guarded.submit(&[Operation::Take(&charges)], &mut answers).await;
            let ended = self.stopwatch.elapsed();
            let StoreResponse::Decision(decision) =
                answers.pop().context("the store returned no answer")??
            else {
                anyhow::bail!("not a decision");
            };
            let degraded = decision.degraded().is_some();
            entries.push(Entry { ended, took: ended - asked, degraded });
            sleep(PAUSE).await;
        }
        Ok(entries)
    }
}
