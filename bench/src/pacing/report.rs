//! The tables of `pacing`, as Markdown.

use std::fmt::{Result, Write as _};

use super::{Figures, crowd, solo};
use crate::machine;
use crate::measure::Effort;
use crate::report::{cell, count};

/// The goal for an acquire and release of ours, in nanoseconds.
const GOAL: f64 = 1_000.0;

/// Formats all measurements, with the notes needed to read them.
pub(super) fn tables(figures: &Figures, effort: Effort) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_header(&mut text, effort);
    let _ = write_solo(&mut text, figures);
    let _ = write_grants(&mut text, figures);
    let _ = write_memory(&mut text, figures);
    text
}

fn write_header(text: &mut String, effort: Effort) -> Result {
    writeln!(
        text,
        "Waiting for permits. {} cores of {}. Median [min .. max] of {} runs, contenders \
         interleaved; times by std `Instant`. Ratios are of medians.\n",
        machine::cores().len().max(1),
        machine::processor().as_deref().unwrap_or("an unknown processor"),
        effort.runs
    )
}

fn write_solo(text: &mut String, figures: &Figures) -> Result {
    writeln!(
        text,
        "Acquire and release by one task that never waits: current-thread runtime, pinned, runs \
         of about 100 ms.\n"
    )?;
    writeln!(text, "| limiter | one turn | its clock | ns per turn | / ours, 1 limit |")?;
    writeln!(text, "| --- | --- | --- | --- | ---: |")?;
    let rows = || solo::Role::ALL.into_iter().zip(&figures.solo);
    let ours = rows().find(|(role, _)| *role == solo::Role::Ours);
    let ours = ours.map_or(f64::NAN, |(_, figure)| figure.median);
    for (role, figure) in rows() {
        let (name, work, clock) = (role.name(), role.work(), role.clock());
        let ratio = figure.median / ours;
        writeln!(text, "| {name} | {work} | {clock} | {} | {ratio:.2} |", cell(figure))?;
    }
    let goal = |wanted| {
        let median = rows().find(|(role, _)| *role == wanted).map(|(_, figure)| figure.median);
        if median.is_some_and(|median| median < GOAL) { "met" } else { "missed" }
    };
    writeln!(
        text,
        "\nGoal, ours below 1 microsecond: {} with one limit, {} with two.\n",
        goal(solo::Role::Ours),
        goal(solo::Role::OursTwo)
    )
}

fn write_grants(text: &mut String, figures: &Figures) -> Result {
    writeln!(
        text,
        "{} tasks wait on one key, then it opens: from the opening to the last grant, on a \
         runtime of two workers, each run in a new process. A permit is dropped as soon as it \
         is granted.\n",
        count(figures.waiters)
    )?;
    writeln!(text, "| limiter | how | thousand grants per second | / ours of the same kind |")?;
    writeln!(text, "| --- | --- | --- | ---: |")?;
    for (role, figure) in grants(figures) {
        let ours = grants(figures).find(|(other, _)| *other == role.ours());
        let ratio = figure.median / ours.map_or(f64::NAN, |(_, figure)| figure.median);
        let (name, method) = (role.name(), role.method());
        writeln!(text, "| {name} | {method} | {} | {ratio:.2} |", cell(figure))?;
    }
    writeln!(
        text,
        "\nMore is better. The first three cannot exceed their rate of 1,000 thousand per second; \
         tokens beyond the capacity of 1,000 are lost between two refills. The last two have no \
         rate and measure the hand-over alone. Runs are not repeated if the machine was busy.\n"
    )
}

fn grants(figures: &Figures) -> impl Iterator<Item = (crowd::Role, &crate::measure::Figure)> {
    let rows = crowd::Role::ALL.into_iter().zip(&figures.crowds);
    rows.filter_map(|(role, crowd)| Some((role, crowd.grants.as_ref()?)))
}

fn write_memory(text: &mut String, figures: &Figures) -> Result {
    writeln!(text, "| limiter | bytes per waiter, task included | above the baseline |")?;
    writeln!(text, "| --- | --- | ---: |")?;
    let rows = crowd::Role::ALL.into_iter().zip(&figures.crowds);
    let rows = rows.filter_map(|(role, crowd)| Some((role, crowd.bytes.as_ref()?)));
    let baseline = rows.clone().find(|(role, _)| *role == crowd::Role::Baseline);
    let baseline = baseline.map_or(f64::NAN, |(_, figure)| figure.median);
    for (role, figure) in rows {
        // Adding zero turns a rounded -0 into 0.
        let above = (figure.median - baseline).round() + 0.0;
        writeln!(text, "| {} | {} | {above:.0} |", role.name(), cell(figure))?;
    }
    writeln!(
        text,
        "\nResident memory of a fresh process before the first task is started and when all {} \
         wait, by /proc/self/statm; it includes what the allocator keeps and the slack of growing \
         tables. The baseline is as many tasks that wait at a tokio `Notify`.",
        count(figures.waiters)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Figure, QUICK};
    use crate::pacing::Crowd;

    #[test]
    fn ratios_divide_by_the_right_row() {
        let figure = |median| Figure { median, min: 1.0, max: 9_999.0, disturbed: 0 };
        let solo = [400.0, 1_200.0, 20.0, 40.0, 30.0, 60.0].map(figure).to_vec();
        let crowd = |grants: Option<f64>, bytes: Option<f64>| Crowd {
            grants: grants.map(figure),
            bytes: bytes.map(figure),
        };
        let crowds = vec![
            crowd(Some(500.0), Some(900.0)),
            crowd(Some(250.0), Some(640.0)),
            crowd(Some(50.0), None),
            crowd(Some(800.0), Some(900.0)),
            crowd(Some(4_000.0), Some(510.0)),
            crowd(None, Some(700.0)),
            crowd(None, Some(500.0)),
        ];
        let text = tables(&Figures { solo, crowds, waiters: 100_000 }, QUICK);
        assert!(text.contains("20.0 [1.0 .. 9999.0] | 0.05 |"), "{text}");
        assert!(text.contains("met with one limit, missed with two"), "{text}");
        assert!(text.contains("250.0 [1.0 .. 9999.0] | 0.50 |"), "{text}");
        assert!(text.contains("4000.0 [1.0 .. 9999.0] | 5.00 |"), "{text}");
        assert!(text.contains("| leaky-bucket | 640.0 [1.0 .. 9999.0] | 140 |"), "{text}");
    }
}
