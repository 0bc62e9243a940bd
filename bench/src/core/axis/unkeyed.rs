//! One bucket without a key.

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use crate::contender::Contender;
use crate::core::axis::{Axis, Case};
use crate::core::contenders::policy::{ONCE, UNKEYED};
use crate::core::contenders::role::Role;
use crate::core::results::Point;
use crate::measure::{Answer, Effort, Worker, measure_interleaved};

const CASES: [(Case, usize); 4] =
    [(Case::Allowed, 1), (Case::Denied, 1), (Case::Apart, 2), (Case::Shared, 2)];

pub(in crate::core) fn steps(effort: Effort) -> usize {
    cases().count() * roles().count() * effort.runs
}

pub(in crate::core) fn measure(effort: Effort, progress: &ProgressBar) -> Result<Vec<Point>> {
    let measure = |(case, threads): (Case, usize)| {
        progress.set_message(format!("without keys, {}", case.name()));
        let answer = if case == Case::Denied { Answer::No } else { Answer::Yes };
        let buckets = if case == Case::Apart { threads } else { 1 };
        let teams = roles().map(|role| enter(role, answer, buckets));
        let teams = teams.collect::<Result<Vec<_>>>()?;
        let workers = teams.iter().map(|team| workers(team, threads)).collect();
        let figures = measure_interleaved(workers, answer, effort, progress)?;
        let figures = roles().zip(figures).collect();
        Ok(Point { axis: Axis::Unkeyed, case, threads, figures })
    };
    cases().map(measure).collect()
}

fn cases() -> impl Iterator<Item = (Case, usize)> {
    CASES.into_iter().filter(|(_, threads)| *threads <= crate::core::cores())
}

fn roles() -> impl Iterator<Item = Role> {
    Role::EXACT.into_iter().chain(Role::CACHED)
}

/// Creates this many buckets that return the given decision.
fn enter(role: Role, answer: Answer, buckets: usize) -> Result<Vec<Box<dyn Contender>>> {
    let enter = |_| {
        let policy = if answer == Answer::No { ONCE } else { UNKEYED };
        let contender = role.enter(0, policy)?;
        ensure!(contender.decide(&[], 1) == 1, "{} has no initial token", role.name());
        Ok(contender)
    };
    (0..buckets).map(enter).collect()
}

/// Assigns the threads to the buckets round robin.
fn workers(buckets: &[Box<dyn Contender>], threads: usize) -> Vec<Worker<'_>> {
    let buckets = buckets.iter().cycle().take(threads);
    buckets.map(|contender| Worker { contender: contender.as_ref(), order: &[] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_apart_ask_different_buckets() {
        let apart = enter(Role::Cell, Answer::Yes, 2).unwrap();
        let shared = enter(Role::Cell, Answer::Yes, 1).unwrap();
        let same =
            |workers: &[Worker<'_>]| std::ptr::addr_eq(workers[0].contender, workers[1].contender);
        assert!(!same(&workers(&apart, 2)));
        assert!(same(&workers(&shared, 2)));
    }
}
