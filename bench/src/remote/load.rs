//! Callers in a closed loop: each sends a request, waits for the response, and repeats.
//!
//! A run lasts its length, and until every caller has two responses. The rates of the callers, each
//! over its own time, are added, so that the end of the last one does not matter. The first
//! response of a caller is not counted, because all callers start at once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::axes::{Orders, Point};
use super::contender::Contender;
use crate::machine;
use crate::measure::{as_float, percentiles};
use crate::stopwatch::Stopwatch;

/// Minimum number of decisions of a caller in a run.
const MIN_DECISIONS: usize = 2;

/// Results of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Decisions per second.
    pub(super) rate: f64,
    /// Microseconds.
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// Microseconds of processor time per decision: of the server, and of this process.
    pub(super) server: Option<f64>,
    pub(super) client: Option<f64>,
    /// Share of all cores used by other processes.
    pub(super) others: Option<f64>,
}

/// Makes one run. `server` is the process id of the server.
pub(super) async fn run(
    contender: &Arc<Contender>,
    point: Point,
    orders: &Arc<Orders>,
    length: Duration,
    server: u32,
) -> Result<Run> {
    let (start, stopwatch) = (Arc::new(Barrier::new(point.callers + 1)), Stopwatch::start());
    let mut callers = JoinSet::new();
    for caller in 0..point.callers {
        let (contender, orders, start) = (contender.clone(), orders.clone(), start.clone());
        callers.spawn(async move {
            let caller = Caller { contender: &contender, point, orders: &orders, caller };
            caller.ask(&start, stopwatch, length).await
        });
    }
    start.wait().await;
    let before = Times::read(server);
    let stopwatch = Stopwatch::start();
    let mut nanos = Vec::new();
    let mut rate = 0.0;
    while let Some(result) = callers.join_next().await {
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
            server: machine::processor_time_of(server),
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

struct Caller<'a> {
    contender: &'a Contender,
    point: Point,
    orders: &'a Orders,
    caller: usize,
}

/// Results of a caller.
struct CallerResult {
    /// Duration of each decision.
    nanos: Vec<u64>,
    lasted: Duration,
}

impl Caller<'_> {
    async fn ask(
        self,
        start: &Barrier,
        stopwatch: Stopwatch,
        length: Duration,
    ) -> Result<CallerResult> {
        let mut caller_connection = self.contender.caller_connection(self.caller);
        let mut keys = self.orders.of(self.point.distribution, self.caller);
        let mut nanos = Vec::with_capacity(1_024);
        let (mut begun, mut asked) = (None, 0);
        loop {
            let key = keys.next().context("no keys")?;
            let allowed =
                self.contender.decide(&mut caller_connection, key, self.point.charges).await?;
            ensure!(allowed, "a contender denied; results would not be comparable");
            let now = stopwatch.nanos();
            let Some(begun) = begun else {
                start.wait().await;
                asked = stopwatch.nanos();
                begun = Some(asked);
                continue;
            };
            nanos.push(now - asked);
            asked = now;
            let lasted = Duration::from_nanos(now - begun);
            if lasted >= length && nanos.len() >= MIN_DECISIONS {
                return Ok(CallerResult { nanos, lasted });
            }
        }
    }
}
