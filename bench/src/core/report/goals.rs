//! The goals, and the measured values.

use std::fmt;

use crate::core::axis::footprint::Subject;
use crate::core::axis::{Axis, Case};
use crate::core::contenders::role::Role;
use crate::core::results::Results;
use crate::report::count;

/// One line of the table of goals.
#[derive(Debug)]
pub(in crate::core) struct Goal {
    pub(in crate::core) what: String,
    pub(in crate::core) wanted: Wanted,
    pub(in crate::core) reached: f64,
}

/// The wanted range of a value.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) enum Wanted {
    AtLeast(f64),
    /// The second number is hoped for.
    AtLeastAim(f64, f64),
    AtMost(f64),
    /// The second number is hoped for.
    AtMostAim(f64, f64),
    Above(f64),
}

impl Goal {
    pub(in crate::core) fn is_met(&self) -> bool {
        match self.wanted {
            Wanted::AtLeast(least) | Wanted::AtLeastAim(least, _) => self.reached >= least,
            Wanted::AtMost(most) | Wanted::AtMostAim(most, _) => self.reached <= most,
            Wanted::Above(limit) => self.reached > limit,
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::AtLeastAim(least, aim) => write!(f, "at least {least} (aim {aim})"),
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::AtMostAim(most, aim) => write!(f, "at most {most} (aim {aim})"),
            Self::Above(limit) => write!(f, "above {limit}"),
        }
    }
}

/// The goals for which there are measurements.
pub(in crate::core) fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    goals.extend(of_keys(results));
    goals.extend(of_batches(results));
    goals.extend(of_one_bucket(results));
    goals.extend(of_threads(results));
    goals.extend(of_memory(results));
    goals.extend(of_pauses(results));
    goals
}

fn of_keys(results: &Results) -> impl Iterator<Item = Goal> {
    use Role::{Flat, Governor, Spend};
    let four = Wanted::AtLeastAim(4.0, 5.0);
    let rows = [
        (Case::Million, 1, (Governor, Spend), four),
        (Case::Million, 2, (Governor, Spend), four),
        (Case::Million, 1, (Spend, Flat), Wanted::AtMost(1.5)),
        (Case::Million, 2, (Spend, Flat), Wanted::AtMost(1.5)),
        (Case::Thousand, 1, (Governor, Spend), Wanted::AtLeast(2.0)),
        (Case::Thousand, 2, (Governor, Spend), Wanted::AtLeast(2.0)),
        (Case::Hot, 2, (Governor, Spend), Wanted::AtLeast(1.5)),
    ];
    rows.into_iter().filter_map(move |(case, threads, (first, second), wanted)| {
        let reached = results.point(Axis::Keyed, case, threads)?.ratio(first, second)?;
        let sides = if first == Governor { "governor / ours" } else { "ours / floor" };
        Some(Goal { what: format!("{}, {}: {sides}", case.name(), on(threads)), wanted, reached })
    })
}

fn of_batches(results: &Results) -> impl Iterator<Item = Goal> {
    results.of(Axis::Batch).filter_map(|point| {
        let reached = point.ratio(Role::Many, Role::FlatBatched)?;
        let what = format!("batch, {}, {}: ours / floor", point.case.name(), on(point.threads));
        Some(Goal { what, wanted: Wanted::AtMostAim(1.7, 1.5), reached })
    })
}

fn of_one_bucket(results: &Results) -> impl Iterator<Item = Goal> {
    let rows = [
        (Role::Direct, Role::Cell, 1.1, "clock of the moment"),
        (Role::DirectCached, Role::CellCached, 1.5, "cached clock"),
    ];
    rows.into_iter().filter_map(|(ours, floor, most, clock)| {
        let reached = results.point(Axis::Unkeyed, Case::Allowed, 1)?.ratio(ours, floor)?;
        let what = format!("without keys, {clock}: ours / bare CAS");
        Some(Goal { what, wanted: Wanted::AtMost(most), reached })
    })
}

/// The throughput of two threads relative to one, in the worst case.
fn of_threads(results: &Results) -> Option<Goal> {
    let gain = |axis, case: Case, role| {
        let two = results.point(axis, case, 2)?.figure(role)?.median;
        let alone = match case {
            Case::Apart => Case::Allowed,
            Case::Halves => Case::Thousand,
            case => case,
        };
        Some((2.0 * results.point(axis, alone, 1)?.figure(role)?.median / two, case))
    };
    let points = results.points.iter().filter(|point| point.threads == 2 && point.case.is_spread());
    let gains = points.filter_map(|point| {
        let role = match point.axis {
            Axis::Unkeyed => Role::Direct,
            Axis::Batch => Role::Many,
            _ => Role::Spend,
        };
        gain(point.axis, point.case, role)
    });
    let (reached, case) = gains.min_by(|one, other| one.0.total_cmp(&other.0))?;
    let what = format!("2 threads / 1 thread in all, the least of cases ({})", case.name());
    Some(Goal { what, wanted: Wanted::Above(1.0), reached })
}

fn of_memory(results: &Results) -> impl Iterator<Item = Goal> {
    let ours = || results.footprints.iter().filter(|print| print.subject == Subject::Tidegate);
    let million = ours().find(|print| print.keys == 1_000_000).and_then(|print| {
        let what = "bytes per key, 1 M keys".to_owned();
        Some(Goal { what, wanted: Wanted::AtMost(48.0), reached: print.resident()? })
    });
    let sizes = ours().filter(|print| print.keys > 10_000);
    let sizes = sizes.filter_map(|print| Some((print.resident()?, print.keys)));
    let most = sizes.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(reached, keys)| {
        let what = format!("bytes per key, the most of sizes ({} keys)", count(keys));
        Goal { what, wanted: Wanted::AtMost(64.0), reached }
    });
    million.into_iter().chain(most)
}

fn of_pauses(results: &Results) -> Option<Goal> {
    let (_, pauses) = results.pauses.iter().find(|(role, _)| *role == Role::Spend)?;
    let what = "longest pause while growing, best pass, ms".to_owned();
    Some(Goal { what, wanted: Wanted::AtMost(1.0), reached: pauses.longest.min / 1e3 })
}

/// So many threads, in words.
pub(in crate::core) fn on(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::axis::new_keys::Pauses;
    use crate::core::results::Point;
    use crate::measure::summary;

    fn point(axis: Axis, case: Case, threads: usize, medians: &[(Role, f64)]) -> Point {
        let figures = medians.iter().map(|(role, nanos)| (*role, summary(&[*nanos], 0))).collect();
        Point { axis, case, threads, figures }
    }

    fn reported(results: &Results) -> Vec<(String, f64, bool)> {
        let tell = |goal: &Goal| (goal.what.clone(), goal.reached, goal.is_met());
        goals(results).iter().map(tell).collect()
    }

    #[test]
    fn nothing_measured_is_nothing_reached() {
        assert!(goals(&Results::default()).is_empty());
    }

    #[test]
    fn goals_divide_the_right_medians() {
        let keyed = [(Role::Spend, 100.0), (Role::Governor, 410.0), (Role::Flat, 50.0)];
        let results = Results {
            points: vec![
                point(Axis::Keyed, Case::Million, 1, &keyed),
                point(Axis::Keyed, Case::Million, 2, &[(Role::Spend, 250.0)]),
                point(Axis::Unkeyed, Case::Allowed, 1, &[(Role::Direct, 11.0), (Role::Cell, 10.0)]),
                point(Axis::Unkeyed, Case::Apart, 2, &[(Role::Direct, 11.0)]),
            ],
            pauses: vec![(
                Role::Spend,
                Pauses {
                    one_in_a_thousand: summary(&[1.0], 0),
                    longest: summary(&[900.0, 5_000.0, 7_000.0], 0),
                },
            )],
            ..Results::default()
        };
        let expected = [
            ("1 M keys, 1 thread: governor / ours", 4.1, true),
            ("1 M keys, 1 thread: ours / floor", 2.0, false),
            ("without keys, clock of the moment: ours / bare CAS", 1.1, true),
            ("2 threads / 1 thread in all, the least of cases (1 M keys)", 0.8, false),
            ("longest pause while growing, best pass, ms", 0.9, true),
        ];
        let reported = reported(&results);
        assert_eq!(reported.len(), expected.len(), "{reported:?}");
        for ((what, reached, met), expected) in reported.iter().zip(expected) {
            assert_eq!((what.as_str(), *met), (expected.0, expected.2));
            assert!((reached - expected.1).abs() < 1e-9, "{what}: {reached}");
        }
    }
}
