//! `pacing`: waiting for permits, alone and with many waiters, compared with peers.
//!
//! Alone means one task that never waits. A crowd is many tasks that wait on one key until it
//! opens. Each crowd runs in a separate process, so that it does not reuse memory that an earlier
//! one freed.

mod crowd;
mod report;
mod solo;
mod waiters;

use anyhow::Result;
use indicatif::ProgressBar;

use crate::measure::{Effort, Figure, measure_shared, summary};
use crate::progress;

pub(crate) use crowd::alone as crowd_alone;

/// Results, in the order of the roles.
#[derive(Debug)]
struct Figures {
    /// Nanoseconds per acquire and release.
    solo: Vec<Figure>,
    crowds: Vec<Crowd>,
    waiters: usize,
}

/// Results of the crowds of one role.
#[derive(Debug)]
struct Crowd {
    /// Thousands of grants per second; `None` if it was not opened.
    grants: Option<Figure>,
    /// Growth of the process in bytes per waiter; `None` if unknown.
    bytes: Option<Figure>,
}

/// Number of waiters in a crowd.
pub(crate) const fn waiters(quick: bool) -> usize {
    if quick { 10_000 } else { 100_000 }
}

/// Runs all measurements and prints the tables.
pub(crate) fn run(effort: Effort, waiters: usize) -> Result<()> {
    let steps = (solo::Role::ALL.len() + crowd::Role::ALL.len()) * effort.runs;
    let progress = progress::bar(steps as u64)?;
    let solo = measure_solo(effort, &progress)?;
    let crowds = measure_crowds(effort, waiters, &progress)?;
    progress.finish_and_clear();
    print!("{}", report::tables(&Figures { solo, crowds, waiters }, effort));
    Ok(())
}

fn measure_solo(effort: Effort, progress: &ProgressBar) -> Result<Vec<Figure>> {
    progress.set_message("acquire and release");
    let contenders = solo::Role::ALL.map(solo::Role::enter);
    let contenders = contenders.into_iter().collect::<Result<Vec<_>>>()?;
    let key = [vec!["key-1".to_owned()]];
    measure_shared(&contenders, &key, effort, progress)
}

fn measure_crowds(effort: Effort, waiters: usize, progress: &ProgressBar) -> Result<Vec<Crowd>> {
    let mut grants = crowd::Role::ALL.map(|_| Vec::new());
    let mut bytes = crowd::Role::ALL.map(|_| Vec::new());
    for _ in 0..effort.runs {
        for (index, role) in crowd::Role::ALL.into_iter().enumerate() {
            progress.set_message(format!("{waiters} waiters: {}", role.name()));
            let run = crowd::in_child_process(role, waiters)?;
            grants[index].extend(run.grants(waiters).map(|grants| grants / 1_000.0));
            bytes[index].extend(run.bytes(waiters));
            progress.inc(1);
        }
    }
    let figure = |runs: &Vec<f64>| (!runs.is_empty()).then(|| summary(runs, 0));
    let pairs = grants.iter().zip(&bytes);
    Ok(pairs
        .map(|(grants, bytes)| Crowd { grants: figure(grants), bytes: figure(bytes) })
        .collect())
}
