//! Decisions on keys, one at a time and sixteen at a time.

use anyhow::Result;
use indicatif::ProgressBar;

use crate::contender::Contender;
use crate::core::axis::zipf::Zipf;
use crate::core::axis::{Axis, Case};
use crate::core::contenders::policy::{BenchPolicy, FEW, MANY, ONCE};
use crate::core::contenders::role::Role;
use crate::core::results::Point;
use crate::keys;
use crate::measure::{Answer, Effort, measure_interleaved, shared_workers};

/// Number of keys, prepared requests per thread, and the cases.
#[derive(Debug)]
struct Set {
    keys: usize,
    requests: usize,
    cases: &'static [Case],
    policy: BenchPolicy,
}

/// A thousand keys and their requests fit the cache of a core; a million do not.
const SETS: [Set; 2] = [
    Set {
        keys: 1_000,
        requests: 8_192,
        cases: &[Case::Thousand, Case::Halves, Case::Hot, Case::ThousandDenied],
        policy: FEW,
    },
    Set { keys: 1_000_000, requests: 1 << 20, cases: &[Case::Million, Case::Zipf], policy: MANY },
];

pub(in crate::core) fn steps(axis: Axis, effort: Effort) -> usize {
    let cases = SETS.iter().flat_map(|set| set.cases);
    let points: usize = cases.map(|case| threads(axis, *case).count()).sum();
    points * roles(axis).len() * effort.runs
}

/// Measures one of the two keyed axes.
pub(in crate::core) fn measure(
    axis: Axis,
    effort: Effort,
    progress: &ProgressBar,
) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for set in &SETS {
        progress.set_message(format!("preparing {} keys", set.keys));
        let all = keys::first(set.keys);
        let generous = enter(axis, &all, set.policy)?;
        for &case in set.cases {
            if threads(axis, case).next().is_none() {
                continue;
            }
            let orders: Vec<_> = (0..2).map(|thread| order(set, case, thread)).collect();
            let (spent, answer) = match case {
                Case::ThousandDenied => (Some(enter(axis, &all, ONCE)?), Answer::No),
                _ => (None, Answer::Yes),
            };
            let contenders = spent.as_ref().unwrap_or(&generous);
            for threads in threads(axis, case) {
                progress.set_message(format!("{}, {threads} threads", case.name()));
                let teams = shared_workers(contenders, &orders[..threads]);
                let figures = measure_interleaved(teams, answer, effort, progress)?;
                let figures = roles(axis).iter().copied().zip(figures).collect();
                points.push(Point { axis, case, threads, figures });
            }
        }
    }
    Ok(points)
}

const fn roles(axis: Axis) -> &'static [Role] {
    match axis {
        Axis::Batch => &Role::BATCH,
        _ => &Role::KEYED,
    }
}

/// The numbers of threads on which a case is measured; empty if it is not.
fn threads(axis: Axis, case: Case) -> impl Iterator<Item = usize> {
    let threads: &[usize] = match (axis, case) {
        (Axis::Batch, Case::Halves | Case::Hot | Case::ThousandDenied) => &[],
        (_, Case::Halves) => &[2],
        _ => &[1, 2],
    };
    threads.iter().copied().filter(|threads| *threads <= crate::core::cores())
}

/// Inserts every key into every contender.
fn enter(axis: Axis, all: &[String], policy: BenchPolicy) -> Result<Vec<Box<dyn Contender>>> {
    let enter = |role: &Role| {
        let contender = role.enter(all.len(), policy)?;
        contender.decide(all, all.len() as u64);
        Ok(contender)
    };
    roles(axis).iter().map(enter).collect()
}

fn order(set: &Set, case: Case, thread: usize) -> Vec<String> {
    let half = set.keys / 2;
    match case {
        Case::Zipf => {
            let zipf = Zipf::of(set.keys);
            keys::order(set.requests, thread, |random| zipf.draw(random))
        }
        Case::Hot => keys::order(set.requests, thread, |_| half),
        Case::Halves => {
            keys::order(set.requests, thread, |random| thread * half + random.below(half))
        }
        _ => keys::order(set.requests, thread, |random| random.below(set.keys)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn threads_with_their_own_halves_have_no_key_in_common() {
        let order = |thread| order(&SETS[0], Case::Halves, thread);
        let [one, other] = [order(0), order(1)];
        let one: HashSet<_> = one.iter().collect();
        assert_eq!(one.len(), 500);
        assert!(other.iter().all(|key| !one.contains(key)));
    }

    #[test]
    fn a_hot_key_is_the_only_one() {
        let order = |thread| order(&SETS[0], Case::Hot, thread);
        assert_eq!(order(0), order(1));
        assert_eq!(order(0).iter().collect::<HashSet<_>>().len(), 1);
    }
}
