//! `outbound`: calls to a provider by this client, and by hand-written loops.
//!
//! The provider is the simulator, in the same process and in virtual time, so a run of minutes
//! takes no real time, is reproducible, and needs no idle machine. The overhead of a call is
//! measured in real time, before the clock is paused.

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

/// Results of a scenario: for each of [`Role::ALL`], one run per seed.
#[derive(Debug)]
struct Heat {
    scenario: Scenario,
    /// Minimum possible time in seconds, for each seed.
    optimum: Vec<f64>,
    runs: Vec<Vec<Run>>,
}

/// Runs all measurements and prints the tables.
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
            heat.optimum.push(scenario.limits(seed).shortest_time(work).as_secs_f64());
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
