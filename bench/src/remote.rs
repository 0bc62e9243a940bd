//! `redis`: decisions through a real server, compared with hand-written scripts on the same client.
//!
//! All contenders use one server on loopback, started for this run. Their runs alternate, so that
//! other load on the machine affects all equally. Nothing is pinned: server and clients share the
//! cores, and the tables have the processor time of both.

mod axes;
mod contender;
mod outage;
mod report;
mod servers;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::closed_loop::{self, Caller, Run};
use crate::machine;
use crate::measure::{Figure, summary};
use crate::progress;
use axes::{Charges, MAX_CALLERS, Orders, Point};
use contender::{CallerConnection, Contender, Role};
use outage::{OutageLog, Scenario, Script};
use servers::Servers;

/// Number of tasks that insert every key.
const PRELOADERS: usize = 50;

/// Maximum share of all cores that other processes may use in a run.
const MAX_OTHER_LOAD: f64 = 0.1;

/// Amount of measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Number of runs of every contender at every point.
    rounds: usize,
    length: Duration,
    /// Maximum number of discarded runs per row.
    throw_aways: usize,
    outage: Script,
}

/// Effort for quotable results.
pub(crate) const THOROUGH: Effort = Effort {
    rounds: 7,
    length: Duration::from_millis(250),
    throw_aways: 7,
    outage: Script {
        before: Duration::from_secs(1),
        away: Duration::from_secs(2),
        after: Duration::from_secs(1),
        repeats: 5,
    },
};

/// Effort for a quick overview. Such short runs do not show other load.
pub(crate) const QUICK: Effort = Effort {
    rounds: 3,
    length: Duration::from_millis(20),
    throw_aways: 0,
    outage: Script {
        before: Duration::from_millis(300),
        away: Duration::from_millis(500),
        after: Duration::from_millis(300),
        repeats: 1,
    },
};

/// Results of a contender at a point: its runs in order.
#[derive(Clone, Debug)]
struct Row {
    point: Point,
    role: Role,
    runs: Vec<Run>,
    /// Number of counted runs with other load.
    disturbed: usize,
}

impl Row {
    /// Median and range of the runs.
    fn figure(&self, value: impl Fn(&Run) -> f64) -> Figure {
        summary(&self.runs.iter().map(value).collect::<Vec<_>>(), self.disturbed)
    }

    /// The ratio to another row: the median over the rounds, because the conditions are similar
    /// within a round and change between rounds.
    fn ratio(&self, other: &Self, value: impl Fn(&Run) -> f64) -> f64 {
        let pairs = self.runs.iter().zip(&other.runs);
        let ratios: Vec<f64> = pairs.map(|(this, that)| value(this) / value(that)).collect();
        summary(&ratios, 0).median
    }
}

/// All results.
#[derive(Debug)]
struct Figures {
    rows: Vec<Row>,
    outages: Vec<(Scenario, OutageLog)>,
    server: String,
    /// Why redis-cell was not measured, if it was not.
    without_cell: Option<String>,
}

/// Runs all measurements and prints the tables. `cell` is the path of redis-cell, or why it is
/// missing.
pub(crate) fn run(effort: Effort, cell: Result<PathBuf, String>) -> Result<()> {
    machine::raise_file_limit();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let servers = Arc::new(Servers::start());
    let orders = Arc::new(Orders::new());
    let loaded =
        cell.and_then(|path| servers.load_module(&path).map_err(|error| error.to_string()));
    let progress = progress::bar(0)?;
    let (server, with_cell) = (servers.version(), loaded.is_ok());
    let rows = runtime.block_on(measure(&servers, &orders, effort, with_cell, &progress))?;
    let mut outages = Vec::new();
    for scenario in Scenario::ALL {
        progress.set_message(format!("a server that is {}", scenario.name()));
        let log = runtime.block_on(outage::run(scenario, effort.outage, &servers, &orders))?;
        outages.push((scenario, log));
    }
    progress.finish_and_clear();
    let figures = Figures { rows, outages, server, without_cell: loaded.err() };
    print!("{}", report::tables(&figures, effort));
    Ok(())
}

async fn measure(
    servers: &Servers,
    orders: &Arc<Orders>,
    effort: Effort,
    with_cell: bool,
    progress: &ProgressBar,
) -> Result<Vec<Row>> {
    let mut contenders = Vec::new();
    for role in Role::ALL.into_iter().filter(|role| with_cell || *role != Role::Cell) {
        progress.set_message(format!("preparing {}", role.name()));
        let contender = Arc::new(role.enter(servers, MAX_CALLERS).await?);
        if matches!(role, Role::Ours | Role::Shared | Role::Cell | Role::Floor) {
            preload(&contender, orders).await?;
        }
        contenders.push((role, contender));
    }
    let mut rows = Vec::new();
    let groups = Point::groups();
    let rows_of = |charges| contenders.iter().filter(move |(role, _)| role.measured_with(charges));
    let rows_of_group: usize = Charges::ALL.map(|charges| rows_of(charges).count()).iter().sum();
    progress.set_length((groups.len() * rows_of_group * effort.rounds) as u64);
    for group in groups {
        let [Point { callers, distribution, .. }, _] = group;
        progress.set_message(format!("{callers} callers, {} keys", distribution.name()));
        let mut turns = Vec::new();
        for point in group {
            let present = rows_of(point.charges);
            turns.extend(present.map(|(role, contender)| Turns::new(point, *role, contender)));
        }
        for _ in 0..effort.rounds {
            for turns in &mut turns {
                turns.take(servers, orders, effort).await?;
                progress.inc(1);
            }
        }
        rows.extend(turns.into_iter().map(|turns| turns.row));
    }
    Ok(rows)
}

/// A row that is being measured.
struct Turns<'a> {
    row: Row,
    contender: &'a Arc<Contender>,
    thrown_away: usize,
}

impl<'a> Turns<'a> {
    fn new(point: Point, role: Role, contender: &'a Arc<Contender>) -> Self {
        let row = Row { point, role, runs: Vec::new(), disturbed: 0 };
        Self { row, contender, thrown_away: 0 }
    }

    /// Makes one run and keeps it, unless it was disturbed and may be discarded.
    async fn take(
        &mut self,
        servers: &Servers,
        orders: &Arc<Orders>,
        effort: Effort,
    ) -> Result<()> {
        loop {
            let callers = RedisCaller::all(self.contender, self.row.point, orders);
            let run = closed_loop::run(callers, effort.length, servers.server().pid()).await;
            let run = run.map_err(|error| error.context(self.row.role.name()))?;
            let fair =
                effort.throw_aways == 0 || run.others.is_none_or(|share| share <= MAX_OTHER_LOAD);
            if fair || self.thrown_away == effort.throw_aways {
                self.row.disturbed += usize::from(!fair);
                self.row.runs.push(run);
                return Ok(());
            }
            self.thrown_away += 1;
        }
    }
}

/// A caller of a contender, with its own order of keys.
struct RedisCaller {
    contender: Arc<Contender>,
    connection: CallerConnection,
    orders: Arc<Orders>,
    point: Point,
    caller: usize,
    /// Number of decisions so far.
    decisions: usize,
}

impl RedisCaller {
    fn all(contender: &Arc<Contender>, point: Point, orders: &Arc<Orders>) -> Vec<Self> {
        let new = |caller| Self {
            contender: contender.clone(),
            connection: contender.caller_connection(caller),
            orders: orders.clone(),
            point,
            caller,
            decisions: 0,
        };
        (0..point.callers).map(new).collect()
    }
}

impl Caller for RedisCaller {
    async fn decide(&mut self) -> Result<bool> {
        let key = self.orders.at(self.point.distribution, self.caller, self.decisions);
        self.decisions += 1;
        self.contender.decide(&mut self.connection, key, self.point.charges).await
    }
}

/// Makes one decision on every key, so that no contender is measured on an empty server.
async fn preload(contender: &Arc<Contender>, orders: &Arc<Orders>) -> Result<()> {
    let mut tasks = JoinSet::new();
    for task in 0..PRELOADERS {
        let (contender, orders) = (contender.clone(), orders.clone());
        tasks.spawn(async move {
            let mut caller_connection = contender.caller_connection(task);
            for key in orders.all.iter().skip(task).step_by(PRELOADERS) {
                contender.decide(&mut caller_connection, key, Charges::Three).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
