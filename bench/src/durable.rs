//! `durable`: the same decision on Durable Objects, over the HTTP API of the program, and on Redis;
//! the latency of a shard during a sweep; and the limiters of the npm package beside their peers.
//!
//! All servers run on loopback: workerd, the runtime of Workers, with the real Worker; the program;
//! and Redis. All callers use one key, so Durable Objects decide in one shard. The contenders
//! alternate, so that other load on the machine affects all equally.

mod contender;
mod report;
mod scripts;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use tokio::runtime::Builder;

use crate::closed_loop::{self, Run};
use crate::measure::{Figure, summary};
use crate::progress;
use contender::{Role, Servers};

/// Numbers of concurrent callers.
const CALLERS: [usize; 2] = [1, 16];

/// Amount of measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Number of runs of every contender with every number of callers.
    rounds: usize,
    length: Duration,
}

/// Effort for quotable results.
pub(crate) const THOROUGH: Effort = Effort { rounds: 9, length: Duration::from_millis(500) };

/// Effort for a quick overview.
pub(crate) const QUICK: Effort = Effort { rounds: 3, length: Duration::from_millis(100) };

/// Results of a contender: its runs in order.
#[derive(Debug)]
struct Row {
    role: Role,
    callers: usize,
    runs: Vec<Run>,
}

impl Row {
    fn figure(&self, value: impl Fn(&Run) -> f64) -> Figure {
        summary(&self.runs.iter().map(value).collect::<Vec<_>>(), 0)
    }

    /// The ratio to another row: the median over the rounds.
    fn ratio(&self, other: &Self, value: impl Fn(&Run) -> f64) -> f64 {
        let pairs = self.runs.iter().zip(&other.runs);
        let ratios: Vec<f64> = pairs.map(|(this, that)| value(this) / value(that)).collect();
        summary(&ratios, 0).median
    }
}

/// Runs all measurements and prints the tables. `tidegate` is the program.
pub(crate) fn run(effort: Effort, tidegate: &Path) -> Result<()> {
    let servers = Servers::start(tidegate)?;
    let mut rows: Vec<Row> = CALLERS
        .into_iter()
        .flat_map(|callers| Role::ALL.map(|role| Row { role, callers, runs: Vec::new() }))
        .collect();
    let progress = progress::bar((rows.len() * effort.rounds) as u64)?;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for _ in 0..effort.rounds {
        for row in &mut rows {
            progress.set_message(format!("{} callers: {}", row.callers, row.role.name()));
            row.runs.push(runtime.block_on(measure(&servers, row, effort.length))?);
            progress.inc(1);
        }
    }
    progress.set_message("a sweep of 100,000 buckets");
    let sweep = scripts::sweep()?;
    progress.set_message("limiters of npm packages");
    let packages = scripts::packages()?;
    progress.finish_and_clear();
    print!("{}", report::tables(&rows, effort, &sweep, &packages));
    Ok(())
}

async fn measure(servers: &Servers, row: &Row, length: Duration) -> Result<Run> {
    let callers = servers.callers(row.role, row.callers).await?;
    closed_loop::run(callers, length, servers.process(row.role)).await
}
