//! Agents: each has some tasks, and a task is some calls, one after the other.
//!
//! A task fails with its first call that has no retry left; its remaining calls are not made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use super::network::Endpoint;
use super::scenario::{AGENTS, CALLS, Scenario, TASKS};
use super::sdk;

/// Agents start within this time, in milliseconds.
const START: u64 = 1_000;

/// What the agents have seen so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) tasks_finished: AtomicU64,
    pub(super) calls_made: AtomicU64,
    pub(super) calls_answered: AtomicU64,
    pub(super) calls_failed: AtomicU64,
    /// Responses with status 429, including those that were retried.
    pub(super) throttled: AtomicU64,
}

impl Tally {
    /// Counts a response that is not a success.
    pub(super) fn count_status(&self, status: StatusCode) {
        if status == StatusCode::TOO_MANY_REQUESTS {
            add(&self.throttled);
        }
    }
}

/// Reads a number of a tally.
pub(super) fn read(number: &AtomicU64) -> u64 {
    number.load(Ordering::Relaxed)
}

fn add(number: &AtomicU64) {
    number.fetch_add(1, Ordering::Relaxed);
}

/// Runs all agents to the end of their tasks. Returns the time that it took.
pub(super) async fn run(
    scenario: Scenario,
    endpoint: &Endpoint,
    path: &'static str,
    tally: &Arc<Tally>,
) -> Result<Duration, JoinError> {
    let start = Instant::now();
    let mut agents = JoinSet::new();
    for number in 0..AGENTS {
        agents.spawn(agent(scenario, number, endpoint.clone(), path, Arc::clone(tally)));
    }
    while let Some(agent) = agents.join_next().await {
        agent?;
    }
    Ok(start.elapsed())
}

async fn agent(
    scenario: Scenario,
    number: u64,
    endpoint: Endpoint,
    path: &'static str,
    tally: Arc<Tally>,
) {
    let mut random = scenario.random(number);
    sleep(Duration::from_millis(random.between(0, START))).await;
    for _ in 0..TASKS {
        let mut left = CALLS;
        while left > 0 {
            let body = Scenario::call(&mut random);
            add(&tally.calls_made);
            if sdk::call(&endpoint, path, &body, &mut random, &tally).await.is_err() {
                add(&tally.calls_failed);
                break;
            }
            add(&tally.calls_answered);
            left -= 1;
        }
        if left == 0 {
            add(&tally.tasks_finished);
        }
    }
}
