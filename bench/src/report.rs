//! The tables, as Markdown.

use std::fmt::Write as _;

use crate::contender::Role;
use crate::decisions::Point;
use crate::machine;
use crate::measure::{Effort, Figure};

/// Everything that was measured, with what one must know to read it.
pub(crate) fn tables(points: &[Point], memory: &[Option<f64>], effort: Effort) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_header(&mut text, effort);
    let _ = write_figures(&mut text, points, memory);
    let _ = write_ratios(&mut text, points);
    text
}

fn write_header(text: &mut String, effort: Effort) -> std::fmt::Result {
    let cores = machine::cores();
    let pinned = if cores.is_empty() { "not pinned" } else { "pinned one per core" };
    writeln!(
        text,
        "In-process decisions, all allowed, keys of 24 bytes, uniform. {} cores of {}; threads \
         {pinned}. Median [min .. max] of {} runs of about 100 ms, contenders in turns.\n",
        cores.len().max(1),
        machine::processor().as_deref().unwrap_or("an unknown processor"),
        effort.runs
    )
}

fn write_figures(text: &mut String, points: &[Point], memory: &[Option<f64>]) -> std::fmt::Result {
    writeln!(text, "| keys | threads | limiter | clock | ns per decision and thread |")?;
    writeln!(text, "| ---: | ---: | --- | --- | --- |")?;
    for point in points {
        for (role, figure) in Role::ALL.iter().zip(&point.figures) {
            writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                count(point.keys),
                point.threads,
                role.name(),
                role.clock(),
                cell(figure)
            )?;
        }
    }
    writeln!(text, "\n| limiter | bytes per key at 1 M keys |\n| --- | ---: |")?;
    for (role, bytes) in Role::ALL.iter().zip(memory) {
        let bytes = bytes.map_or("unknown".to_owned(), |bytes| format!("{bytes:.0}"));
        writeln!(text, "| {} | {bytes} |", role.name())?;
    }
    writeln!(text, "\nResident memory before and after; it includes what the allocator keeps.")
}

fn write_ratios(text: &mut String, points: &[Point]) -> std::fmt::Result {
    writeln!(
        text,
        "\n| keys | threads | governor as it comes / ours | governor, same clock / ours | ours / floor |"
    )?;
    writeln!(text, "| ---: | ---: | ---: | ---: | ---: |")?;
    for point in points {
        writeln!(
            text,
            "| {} | {} | {:.2} | {:.2} | {:.2} |",
            count(point.keys),
            point.threads,
            ratio(point, Role::Governor, Role::Ours),
            ratio(point, Role::GovernorSameClock, Role::Ours),
            ratio(point, Role::Ours, Role::Floor)
        )?;
    }
    Ok(())
}

/// How many times as long the first takes as the second, by their medians.
fn ratio(point: &Point, first: Role, second: Role) -> f64 {
    let median = |wanted: Role| {
        let mut pairs = Role::ALL.iter().zip(&point.figures);
        pairs.find(|(role, _)| **role == wanted).map_or(f64::NAN, |(_, figure)| figure.median)
    };
    median(first) / median(second)
}

/// A figure with its span.
pub(crate) fn cell(figure: &Figure) -> String {
    let Figure { median, min, max, disturbed } = figure;
    let shared = match disturbed {
        0 => String::new(),
        runs => format!(" ({runs} disturbed)"),
    };
    format!("{median:.1} [{min:.1} .. {max:.1}]{shared}")
}

/// A round number, short.
pub(crate) fn count(keys: usize) -> String {
    match keys {
        1_000_000.. => format!("{} M", keys / 1_000_000),
        1_000.. => format!("{} k", keys / 1_000),
        _ => keys.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::QUICK;

    #[test]
    fn ratios_divide_the_right_medians() {
        let figure = |median| Figure { median, min: 1.0, max: 999.0, disturbed: 0 };
        let figures = [100.0, 500.0, 600.0, 80.0].map(figure).to_vec();
        let points = [Point { keys: 1_000_000, threads: 2, figures }];
        let text = tables(&points, &[Some(36.2), None], QUICK);
        assert!(text.contains("| 1 M | 2 | 5.00 | 6.00 | 1.25 |"), "{text}");
        assert!(text.contains("| tidegate-memory | 36 |"), "{text}");
        assert!(text.contains("| governor as it comes | unknown |"), "{text}");
    }
}
