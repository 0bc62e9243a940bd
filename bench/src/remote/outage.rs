//! The latency around a server that goes away and comes back, under a guard.
//!
//! Callers ask in a loop with a short pause: without one they would fill both cores as soon as
//! answers need no server, and what is measured would be the scheduler.

mod diary;
mod exact;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tidegate::guard::Guarded;
use tidegate::{FailureRule, Store as _};
use tidegate_core::{Answer, Answers, Charge, Limit, Operation};
use tidegate_redis::RedisStore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::axes::{Orders, Spread};
use super::contender::policy;
use super::stage::Stage;
use crate::stopwatch::Stopwatch;

pub(super) use diary::{Diary, Phase};
use diary::{Entry, Moments};
pub(super) use exact::{CAPACITY, TAKES};

/// Callers in the loop.
pub(super) const CALLERS: usize = 50;
/// How long each of them pauses.
const PAUSE: Duration = Duration::from_millis(1);
/// The longest that a call may take.
pub(super) const TIMEOUT: Duration = Duration::from_millis(50);
/// A guard that has not found its store by then will not.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a server goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    /// SIGKILL, and a start from nothing.
    Killed,
    /// SIGSTOP and SIGCONT: connections stay and nobody answers.
    Frozen,
}

/// How long each part lasts.
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

    fn lose(self, stage: &Stage) {
        match self {
            Self::Killed => stage.server().kill(),
            Self::Frozen => stage.server().stop(),
        }
    }

    /// Brings the server back; when this returns, it answers.
    fn bring_back(self, stage: &Stage) {
        match self {
            Self::Killed => stage.server().start_again(),
            Self::Frozen => {
                stage.server().cont();
                let _ = stage.server().command(&["PING"]);
            }
        }
    }
}

/// Lets the server go away and come back so many times, each time under a new guard.
pub(super) async fn run(
    scenario: Scenario,
    script: Script,
    stage: &Arc<Stage>,
    orders: &Arc<Orders>,
) -> Result<Diary> {
    let mut diary = Diary::default();
    let (mut repeats, mut patience) = (0, script.repeats);
    while repeats < script.repeats {
        let guarded = guard(stage).await?;
        let (entries, moments) = once(scenario, script, stage, orders, &guarded).await?;
        // A machine on which a healthy server does not answer in time tells nothing.
        if patience > 0 && moments.were_disturbed(&entries) {
            patience -= 1;
            continue;
        }
        repeats += 1;
        diary.add(entries, moments, guarded.stats());
        let other = guard(stage).await?;
        let exact = timeout(PATIENCE, exact::is_exact(&guarded, &other)).await;
        diary.exact &= exact.context("decisions are not shared again")??;
    }
    Ok(diary)
}

/// A node: a store, which is one connection, under a guard.
async fn guard(stage: &Stage) -> Result<Guarded> {
    let store = RedisStore::builder(&stage.url()).open()?;
    store.connected().await?;
    let builder = Guarded::builder(Arc::new(store)).timeout(TIMEOUT);
    Ok(builder.default_rule(FailureRule::Local).build()?)
}

async fn once(
    scenario: Scenario,
    script: Script,
    stage: &Arc<Stage>,
    orders: &Arc<Orders>,
    guarded: &Guarded,
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
    off_the_runtime(stage, move |stage| scenario.lose(stage)).await?;
    sleep(script.away).await;
    off_the_runtime(stage, move |stage| scenario.bring_back(stage)).await?;
    let back = stopwatch.elapsed();
    let found = async {
        while !guarded.is_up() {
            sleep(PAUSE).await;
        }
    };
    timeout(PATIENCE, found).await.context("the store was not found again")?;
    sleep(script.after).await;
    over.store(true, Ordering::Relaxed);
    let mut entries = Vec::new();
    while let Some(told) = callers.join_next().await {
        entries.extend(told.context("a caller of the benchmark panicked")??);
    }
    Ok((entries, Moments { lost, back }))
}

/// Starting and killing wait for other processes, and callers must not wait for that.
async fn off_the_runtime(
    stage: &Arc<Stage>,
    act: impl FnOnce(&Stage) + Send + 'static,
) -> Result<()> {
    let stage = stage.clone();
    Ok(spawn_blocking(move || act(&stage)).await?)
}

struct Caller {
    guarded: Guarded,
    limit: Limit,
    caller: usize,
    stopwatch: Stopwatch,
}

impl Caller {
    async fn ask(self, orders: Arc<Orders>, over: Arc<AtomicBool>) -> Result<Vec<Entry>> {
        let mut entries = Vec::with_capacity(4_096);
        let mut answers = Answers::new();
        for key in orders.of(Spread::Many, self.caller) {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let charges = [Charge::new(&self.limit, key.name(), 1)];
            let asked = self.stopwatch.elapsed();
            self.guarded.submit(&[Operation::Take(&charges)], &mut answers).await;
            let ended = self.stopwatch.elapsed();
            let Answer::Decision(decision) = answers.pop().context("a store answers")?? else {
                anyhow::bail!("not a decision");
            };
            let degraded = decision.degraded().is_some();
            entries.push(Entry { ended, took: ended - asked, degraded });
            sleep(PAUSE).await;
        }
        Ok(entries)
    }
}
