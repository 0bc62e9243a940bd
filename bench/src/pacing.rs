//! `pacing`: waiting for permits, alone and in a crowd, beside the peers that wait too.
//!
//! Alone means one task that never has to wait. A crowd is many tasks that all wait on one key
//! until it opens. Crowds run in processes of their own, so that nobody reuses the memory that
//! somebody before it gave back.

mod crowd;
mod report;
mod solo;
mod waiters;

use anyhow::Result;
use indicatif::ProgressBar;

use crate::measure::{Effort, Figure, measure_shared, summary};
use crate::progress;

pub(crate) use crowd::alone as crowd_alone;

/// What was measured, each in the order of its roles.
#[derive(Debug)]
struct Figures {
    /// Nanoseconds per acquire and release.
    solo: Vec<Figure>,
    crowds: Vec<Crowd>,
    waiters: usize,
}

/// What the crowds of one role came to.
#[derive(Debug)]
struct Crowd {
    /// Thousands of grants per second; `None` if it was not opened.
    grants: Option<Figure>,
    /// Bytes that the process grew by, per waiter; `None` where that is not known.
    bytes: Option<Figure>,
}

/// How many wait in a crowd.
pub(crate) const fn waiters(quick: bool) -> usize {
    if quick { 10_000 } else { 100_000 }
}

/// Measures everything and prints the tables.
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
