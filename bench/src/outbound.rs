//! `outbound`: the same calls to a provider by this stack, and by what one writes by hand.
//!
//! The provider is the simulator, in the same process and in virtual time: a run of minutes takes
//! none, is the same every time, and needs no idle machine. What a call through the stack costs is
//! measured in real time, before any clock is stopped.

mod cost;
mod network;
mod race;
mod report;
mod retry_loop;
mod role;
mod scenario;

use anyhow::Result;

use crate::measure::Effort;
use crate::progress;

use race::Run;
use role::Role;
use scenario::Scenario;

/// What everybody came to in a scenario: for each of [`Role::ALL`] a run for each seed.
#[derive(Debug)]
struct Heat {
    scenario: Scenario,
    /// The least time, in seconds, for each seed.
    optimum: Vec<f64>,
    runs: Vec<Vec<Run>>,
}

/// Measures everything and prints the tables.
pub(crate) fn run(effort: Effort) -> Result<()> {
    let races = Scenario::ALL.len() * Role::ALL.len() * effort.runs;
    let progress = progress::bar((races + cost::Part::ALL.len() * effort.runs) as u64)?;
    let costs = cost::measure(effort, &progress)?;
    let mut heats = Vec::new();
    for scenario in Scenario::ALL {
        let mut heat =
            Heat { scenario, optimum: Vec::new(), runs: vec![Vec::new(); Role::ALL.len()] };
        for seed in 1..=effort.runs as u64 {
            let work = race::weigh(scenario, seed)?;
            heat.optimum.push(scenario.optimum(work, seed));
            for (role, runs) in Role::ALL.into_iter().zip(&mut heat.runs) {
                progress.set_message(format!("{}: {}", scenario.name, role.name()));
                runs.push(race::run(scenario, role, seed)?);
                progress.inc(1);
            }
        }
        heats.push(heat);
    }
    progress.finish_and_clear();
    print!("{}", report::tables(&heats, &costs, effort));
    Ok(())
}
