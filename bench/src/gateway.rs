//! `gateway`: the overhead of the gateway on a call to a provider, compared with nginx.
//!
//! All run on loopback in separate processes: a provider that answers immediately, nginx and the
//! program in front of it, and this process as the client. The three routes to the provider
//! alternate every third of a second, so that other load on the machine affects all of them.

mod axis;
mod load;
mod nginx;
mod report;
mod route;
mod upstream;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::progress;

pub(crate) use upstream::serve_alone;

use axis::Axis;
use load::Slice;
use route::{Route, Routes};

/// Duration of one turn of a route.
const TURN: Duration = Duration::from_millis(330);

/// Number of turns of each route on every axis.
pub(crate) const THOROUGH: usize = 20;
pub(crate) const QUICK: usize = 6;

/// Results of one route on one axis, by turn.
#[derive(Debug)]
struct Row {
    axis: Axis,
    route: Route,
    slices: Vec<Slice>,
}

/// Runs all measurements and prints the tables. `nginx` is its path, or why it is missing.
pub(crate) fn run(rounds: usize, tidegate: &Path, nginx: Result<PathBuf, String>) -> Result<()> {
    let routes = Routes::open(tidegate, nginx)?;
    let mut rows: Vec<Row> = Vec::new();
    for axis in Axis::ALL {
        rows.extend(routes.available().map(|route| Row { axis, route, slices: Vec::new() }));
    }
    let progress = progress::bar((rows.len() * rounds) as u64)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for _ in 0..rounds {
        for row in &mut rows {
            progress.set_message(format!("{}: {}", row.axis.name(), row.route.name()));
            let route_start = routes.route_start(row.route)?;
            row.slices.push(runtime.block_on(load::slice(route_start, row.axis, TURN))?);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    print!("{}", report::tables(&rows, rounds, routes.missing()));
    Ok(())
}
