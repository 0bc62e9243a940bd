//! One run: concurrent agents share the work, in virtual time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use tidegate_llm::{Call, CallError, CallResponse};
use tidegate_sim::Work;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::{Service, ServiceExt as _};

use super::network::{Dice, adapter};
use super::role::{Model, Role};
use super::scenario::Scenario;

/// Four workers of ten agents.
pub(super) const WORKERS: usize = 4;
pub(super) const AGENTS: usize = 10;

/// Results of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Run {
    /// Time until the last call was answered or had failed.
    pub(super) took: Duration,
    /// Number of failed calls.
    pub(super) failed: u64,
    /// Requests that reached the provider, and those answered with 429.
    pub(super) sent: u64,
    pub(super) throttled: u64,
    /// The share of the quota in that time used by answered calls.
    pub(super) used: f64,
}

/// Determines what the provider charges for the work, by making every call once without limits.
pub(super) fn weigh(scenario: Scenario, seed: u64) -> Result<Work> {
    virtual_time()?.block_on(async {
        let simulator = scenario.generous(seed)?;
        let model = adapter(&simulator, &Dice::new(seed))?;
        for call in scenario.work(seed) {
            ask(model.clone(), call).await?;
        }
        let work = simulator.ledger().answered();
        ensure!(work.requests == scenario.calls as u64, "a call was not answered");
        Ok(work)
    })
}

/// Runs a scenario with a role.
pub(super) fn run(scenario: Scenario, role: Role, seed: u64) -> Result<Run> {
    virtual_time()?.block_on(async {
        let simulator = scenario.provider(seed)?;
        let dice = Dice::new(seed);
        let enter = |process| role.enter(scenario, &simulator, &dice, seed + process as u64);
        let processes = (0..scenario.processes).map(enter).collect::<Result<Vec<_>>>()?;
        let (took, failed) = work(&processes, scenario.work(seed)).await?;
        let ledger = simulator.ledger();
        Ok(Run {
            took,
            failed,
            sent: ledger.seen(),
            throttled: ledger.throttled(),
            used: scenario.limits(seed).used_share(ledger.answered(), took),
        })
    })
}

/// A runtime with a paused clock, which advances when all tasks are idle.
fn virtual_time() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().start_paused(true).build()?)
}

/// Each worker has its part of the calls, and its agents take the next call when the last one is
/// done. Returns the total time and the number of failed calls.
async fn work(processes: &[Model], mut calls: Vec<Call>) -> Result<(Duration, u64)> {
    let start = Instant::now();
    let mut agents = JoinSet::new();
    let part = calls.len().div_ceil(WORKERS);
    for worker in 0..WORKERS {
        let own = calls.split_off(calls.len().saturating_sub(part));
        let queue = Arc::new(Mutex::new(own));
        let model = &processes[worker % processes.len()];
        for _ in 0..AGENTS {
            agents.spawn(agent(model.clone(), queue.clone()));
        }
    }
    let mut failed = 0;
    while let Some(agent) = agents.join_next().await {
        failed += agent?;
    }
    Ok((start.elapsed(), failed))
}

async fn agent(model: Model, queue: Arc<Mutex<Vec<Call>>>) -> u64 {
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut failed = 0;
    while let Some(call) = next() {
        failed += u64::from(ask(model.clone(), call).await.is_err());
    }
    failed
}

async fn ask<S>(model: S, call: Call) -> Result<(), CallError>
where
    S: Service<Call, Response = CallResponse, Error = CallError>,
{
    model.oneshot(call).await?.into_reply().await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Scenario = Scenario { calls: 60, ..Scenario::ALL[2] };

    #[test]
    fn everybody_makes_all_of_the_calls_and_twice_the_same() {
        for role in Role::ALL {
            let outcome = run(FEW, role, 1).unwrap();
            assert_eq!(outcome, run(FEW, role, 1).unwrap(), "{}", role.name());
            assert_eq!(outcome.failed, 0, "{}", role.name());
            assert!(outcome.sent - outcome.throttled == 60, "{}: {outcome:?}", role.name());
        }
    }

    #[test]
    fn nobody_is_faster_than_the_optimum() {
        let optimum = FEW.limits(1).shortest_time(weigh(FEW, 1).unwrap()).as_secs_f64();
        assert!(optimum > 4.0, "sixty calls need six slices: {optimum}");
        for role in Role::ALL {
            let outcome = run(FEW, role, 1).unwrap();
            assert!(outcome.took.as_secs_f64() > optimum, "{}: {outcome:?}", role.name());
            assert!((0.0..=1.0).contains(&outcome.used), "{}: {outcome:?}", role.name());
        }
    }
}
