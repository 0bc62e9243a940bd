//! `gateway`: what it costs a call to a provider to go through the gateway, beside nginx.
//!
//! Everybody is on loopback and in a process of its own: a provider that answers at once, nginx
//! and the program before it, and this process, which asks. The three ways to the provider take
//! turns of a third of a second, so that what else happens on the machine happens to all of them.

mod axis;
mod load;
mod nginx;
mod report;
mod response;
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

/// How long one way is asked before it is the turn of the next.
const TURN: Duration = Duration::from_millis(330);

/// How often everybody has a turn on every axis.
pub(crate) const THOROUGH: usize = 20;
pub(crate) const QUICK: usize = 6;

/// What one way came to on one axis, turn by turn.
#[derive(Debug)]
struct Row {
    axis: Axis,
    route: Route,
    slices: Vec<Slice>,
}

/// Measures everything and prints the tables. `nginx` is its program, or why there is none.
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
