//! The goals of the shared store, and the measured values.

use std::fmt::{Result, Write as _};

use super::find;
use crate::remote::Row;
use crate::remote::axes::{CALLERS, Charges, KeyDistribution, MAX_CALLERS, Point};
use crate::remote::contender::Role;

/// Peers to beat with the most callers, and by which factor in decisions per second.
const RIVALS: [(Role, f64); 6] = [
    (Role::Shared, 2.0),
    (Role::SharedCalls, 2.0),
    (Role::Own, 3.0),
    (Role::OwnCalls, 3.0),
    (Role::Fresh, 3.0),
    (Role::FreshCalls, 3.0),
];

/// Maximum ratio of the time of three charges to that of one.
const THREE_TO_ONE: f64 = 1.3;

pub(super) fn write(text: &mut String, rows: &[Row]) -> Result {
    write_rivals(text, rows)?;
    write_charges(text, rows)
}

fn write_rivals(text: &mut String, rows: &[Row]) -> Result {
    writeln!(
        text,
        "Goals with {MAX_CALLERS} callers: decisions per second as a multiple of a rival's, at a \
         p99 that is not higher.\n"
    )?;
    writeln!(text, "| keys | charges | rival | decisions/s: goal | reached | | p99: reached | |")?;
    writeln!(text, "| ---: | ---: | --- | ---: | ---: | --- | ---: | --- |")?;
    for distribution in KeyDistribution::ALL {
        for charges in Charges::ALL {
            let point = Point { callers: MAX_CALLERS, charges, distribution };
            let Some(ours) = find(rows, point, Role::Ours) else { continue };
            for (role, goal) in RIVALS {
                let Some(rival) = find(rows, point, role) else { continue };
                let rate = ours.ratio(rival, |run| run.rate);
                let p99 = ours.ratio(rival, |run| run.p99);
                let (keys, charges, name) = (distribution.name(), charges.count(), role.name());
                write!(text, "| {keys} | {charges} | {name} | {goal:.1} | {rate:.2} ")?;
                writeln!(text, "| {} | {p99:.2} | {} |", word(rate >= goal), word(p99 <= 1.0))?;
            }
        }
    }
    writeln!(text)
}

fn write_charges(text: &mut String, rows: &[Row]) -> Result {
    writeln!(text, "Goal for three charges: at most {THREE_TO_ONE} times the p50 of one.\n")?;
    writeln!(text, "| keys | callers | ours, p50 of 3 / of 1 | | a script of several keys |")?;
    writeln!(text, "| ---: | ---: | ---: | --- | ---: |")?;
    for distribution in KeyDistribution::ALL {
        for callers in CALLERS {
            let ratio = |role| {
                let row = |charges| find(rows, Point { callers, charges, distribution }, role);
                let rows = row(Charges::Three).zip(row(Charges::One));
                rows.map_or(f64::NAN, |(three, one)| three.ratio(one, |run| run.p50))
            };
            let (ours, peer) = (ratio(Role::Ours), ratio(Role::Shared));
            write!(text, "| {} | {callers} | {ours:.2} ", distribution.name())?;
            writeln!(text, "| {} | {peer:.2} |", word(ours <= THREE_TO_ONE))?;
        }
    }
    writeln!(text)
}

const fn word(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed_loop::Run;

    /// Two runs, the second of them on a machine half as fast.
    fn row(point: Point, role: Role, rate: f64, latency: f64) -> Row {
        let (p50, p99) = (latency, latency * 2.0);
        let fast = Run { rate, p50, p99, server: None, client: None, others: None };
        let slow = Run { rate: rate / 2.0, p50: p50 * 2.0, p99: p99 * 2.0, ..fast };
        Row { point, role, runs: vec![fast, slow], disturbed: 0 }
    }

    #[test]
    fn goals_are_met_or_missed_by_the_right_rows() {
        let at = |charges| Point { callers: 500, charges, distribution: KeyDistribution::Many };
        let rows = [
            row(at(Charges::One), Role::Ours, 100_000.0, 1_000.0),
            row(at(Charges::One), Role::Shared, 50_000.0, 900.0),
            row(at(Charges::One), Role::Own, 40_000.0, 1_100.0),
            row(at(Charges::Three), Role::Ours, 90_000.0, 1_301.0),
        ];
        let mut text = String::new();
        write(&mut text, &rows).unwrap();
        let shared =
            "| 10 k | 1 | GCRA script, one connection | 2.0 | 2.00 | met | 1.11 | missed |";
        assert!(text.contains(shared), "{text}");
        assert!(text.contains("| 3.0 | 2.50 | missed | 0.91 | met |"), "{text}");
        assert!(text.contains("| 10 k | 500 | 1.30 | missed |"), "{text}");
    }
}
