//! Callers in a closed loop: each makes a decision, waits for it, and repeats.
//!
//! A run lasts its length, and until every caller has two decisions. The rates of the callers, each
//! over its own time, are added, so that the end of the last one does not matter. The first
//! decision of a caller is not counted, because all callers start at once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::machine;
use crate::measure::{as_float, percentiles};
use crate::stopwatch::Stopwatch;

/// Minimum number of decisions of a caller in a run.
const MIN_DECISIONS: usize = 2;

/// A caller of a limiter. No call is boxed for the benchmark.
pub(crate) trait Caller: Send + 'static {
    /// Makes one decision and returns whether it was allowed.
    fn decide(&mut self) -> impl Future<Output = Result<bool>> + Send;
}

/// Results of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Decisions per second.
    pub(crate) rate: f64,
    /// Microseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Microseconds of processor time per decision: of the server, and of this process.
    pub(crate) server: Option<f64>,
    pub(crate) client: Option<f64>,
    /// Share of all cores used by other processes.
    pub(crate) others: Option<f64>,
}

/// Makes one run. `server` is the process id of the server.
pub(crate) async fn run<C: Caller>(callers: Vec<C>, length: Duration, server: u32) -> Result<Run> {
    let (start, stopwatch) = (Arc::new(Barrier::new(callers.len() + 1)), Stopwatch::start());
    let mut running = JoinSet::new();
    for caller in callers {
        let start = start.clone();
        running.spawn(async move { keep_deciding(caller, &start, stopwatch, length).await });
    }
    start.wait().await;
    let before = Times::read(server);
    let stopwatch = Stopwatch::start();
    let mut nanos = Vec::new();
    let mut rate = 0.0;
    while let Some(result) = running.join_next().await {
        let result = result.context("a caller of the benchmark panicked")??;
        rate += as_float(result.nanos.len() as u64) / result.lasted.as_secs_f64();
        nanos.extend(result.nanos);
    }
    let (spent, length) = (Times::read(server).since(before), stopwatch.elapsed());
    let decisions = as_float(nanos.len() as u64);
    let each = |time: Option<Duration>| Some(time?.as_secs_f64() * 1e6 / decisions);
    let [p50, p99] = percentiles(&mut nanos, [50, 99]);
    let (server, client) = (each(spent.server), each(spent.client));
    Ok(Run { rate, p50, p99, server, client, others: spent.others(length) })
}

/// Processor times, if known.
#[derive(Clone, Copy)]
struct Times {
    server: Option<Duration>,
    client: Option<Duration>,
    all: Option<Duration>,
}

impl Times {
    fn read(server: u32) -> Self {
        Self {
            server: machine::processor_time_of_family(server),
            client: machine::own_processor_time(),
            all: machine::processor_time_of_all(),
        }
    }

    fn since(self, before: Self) -> Self {
        let since = |now: Option<Duration>, then: Option<Duration>| now?.checked_sub(then?);
        Self {
            server: since(self.server, before.server),
            client: since(self.client, before.client),
            all: since(self.all, before.all),
        }
    }

    /// Share of all cores used by other processes in a time of this length.
    fn others(self, length: Duration) -> Option<f64> {
        let others = self.all?.saturating_sub(self.server? + self.client?);
        let cores = as_float(machine::cores().len() as u64);
        Some(others.as_secs_f64() / (length.as_secs_f64() * cores))
    }
}

/// Results of a caller.
struct CallerResult {
    /// Duration of each decision.
    nanos: Vec<u64>,
    lasted: Duration,
}

async fn keep_deciding(
    mut caller: impl Caller,
    start: &Barrier,
    stopwatch: Stopwatch,
    length: Duration,
) -> Result<CallerResult> {
    let first = check(caller.decide().await);
    // A caller that fails must get here too, or none would start.
    start.wait().await;
    first?;
    let begun = stopwatch.nanos();
    let (mut asked, mut nanos) = (begun, Vec::with_capacity(1_024));
    loop {
        check(caller.decide().await)?;
        let now = stopwatch.nanos();
        nanos.push(now - asked);
        asked = now;
        let lasted = Duration::from_nanos(now - begun);
        if lasted >= length && nanos.len() >= MIN_DECISIONS {
            return Ok(CallerResult { nanos, lasted });
        }
    }
}

fn check(allowed: Result<bool>) -> Result<()> {
    ensure!(allowed?, "a contender denied; results would not be comparable");
    Ok(())
}
