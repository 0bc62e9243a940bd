//! `inbound`: the overhead of admission in a service.
//!
//! Three measurements in one run: admission in process; an axum app called in process, in
//! nanoseconds and in instructions; and the same app behind a socket in a separate process.

pub(crate) mod app;
mod calls;
mod load;
mod report;
mod tiers;

use anyhow::Result;

use crate::machine;
use crate::measure::Effort;
use crate::progress;

pub(crate) use calls::{alone as calls_alone, instructions};
pub(crate) use load::serve_alone;

use app::App;

/// Runs all measurements and prints the tables.
pub(crate) fn run(effort: Effort) -> Result<()> {
    // Listed before any thread is pinned, because a pinned thread only sees its own core.
    let cores = machine::cores();
    let steps = tiers::steps(effort) + calls::steps(effort) + load::steps(effort);
    let progress = progress::bar(steps)?;
    let tiers = tiers::measure(effort, &progress)?;
    let calls = calls::measure(effort, cores.first().copied(), &progress)?;
    let instructions: Vec<_> = App::ALL
        .iter()
        .map(|app| {
            progress.set_message(format!("counting instructions, {}", app.name()));
            instructions(*app)
        })
        .collect();
    let loads = load::measure(effort, &cores, &progress)?;
    progress.finish_and_clear();
    print!("{}", report::tables(&tiers, &calls, &instructions, &loads, effort));
    Ok(())
}
