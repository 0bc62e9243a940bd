//! The tables of `core`, as Markdown.

pub(super) mod goals;
pub(super) mod plot;
pub(super) mod table;

use std::fmt::{Result, Write as _};

use super::Settings;
use crate::core::contenders::clocks::{self, RESOLUTION};
use crate::core::contenders::role::Role;
use crate::core::report::goals::goals;
use crate::core::results::Results;
use crate::machine;
use crate::report::{cell, count};

/// Formats all measurements, with the notes needed to read them.
pub(super) fn tables(results: &Results, settings: Settings) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_header(&mut text, settings);
    for table in &table::ALL {
        let _ = table.write(&mut text, results);
    }
    let _ = write_touches(&mut text, results);
    let _ = write_memory(&mut text, results);
    let _ = write_growth(&mut text, results, settings);
    let _ = write_sweeps(&mut text, results);
    let _ = write_goals(&mut text, results);
    text
}

fn write_header(text: &mut String, settings: Settings) -> Result {
    let cores = machine::cores();
    let pinned = if cores.is_empty() { "not pinned" } else { "pinned one per core" };
    writeln!(
        text,
        "In-process decisions, keys of 24 bytes. {} cores of {}; threads {pinned}. Nanoseconds per \
         decision and thread, median [min .. max] of {} runs of about {} ms, contenders \
         interleaved; ratios are of medians. The exact clock of tidegate and the floors is {}; a \
         cached one is at most {} ms old.",
        cores.len().max(1),
        machine::processor().as_deref().unwrap_or("an unknown processor"),
        settings.effort.runs,
        settings.effort.run.as_millis(),
        clocks::exact().name(),
        RESOLUTION.as_millis(),
    )
}

fn write_touches(text: &mut String, results: &Results) -> Result {
    if !results.new_keys.is_empty() {
        writeln!(text, "\nA million new keys, growth included, 1 thread.\n")?;
        writeln!(text, "| limiter | ns per key |\n| --- | --- |")?;
        for (role, figure) in &results.new_keys {
            writeln!(text, "| {} | {} |", role.name(), cell(figure))?;
        }
    }
    if results.pauses.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "\nA million new keys one by one, in microseconds. Other load on \
         the machine only increases the longest pause, so the best of several passes says most.\n"
    )?;
    writeln!(text, "| limiter | 99.9 % within | longest, best pass | longest, median of passes |")?;
    writeln!(text, "| --- | --- | ---: | ---: |")?;
    for (role, pauses) in &results.pauses {
        writeln!(
            text,
            "| {} | {} | {:.0} | {:.0} |",
            role.name(),
            cell(&pauses.one_in_a_thousand),
            pauses.longest.min,
            pauses.longest.median
        )?;
    }
    Ok(())
}

fn write_memory(text: &mut String, results: &Results) -> Result {
    if results.footprints.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nBytes per key, each line in a fresh process.\n")?;
    writeln!(
        text,
        "| limiter | keys | resident | told by the store |\n| --- | ---: | ---: | ---: |"
    )?;
    let tell = |bytes: Option<f64>| bytes.map(|bytes| format!("{bytes:.1}")).unwrap_or_default();
    for print in &results.footprints {
        let (resident, reported) = (tell(print.resident()), tell(print.reported()));
        let keys = count(print.keys);
        writeln!(text, "| {} | {keys} | {resident} | {reported} |", print.subject.name())?;
    }
    Ok(())
}

fn write_growth(text: &mut String, results: &Results, settings: Settings) -> Result {
    let Some(last) = results.growth.last() else { return Ok(()) };
    writeln!(
        text,
        "\nDecisions on uniform keys by number of keys, 1 thread. Keys are generated during the \
         measurement; the last column has that time alone.\n"
    )?;
    writeln!(
        text,
        "| keys | {} | {} | ours / floor | making a key |",
        Role::Spend.name(),
        Role::Flat.name()
    )?;
    writeln!(text, "| ---: | --- | --- | ---: | --- |")?;
    for size in &results.growth {
        let ratio = size.ours.median / size.floor.median;
        let [ours, floor, idle] = [&size.ours, &size.floor, &size.idle].map(cell);
        writeln!(text, "| {} | {ours} | {floor} | {ratio:.2} | {idle} |", count(size.keys))?;
    }
    if last.keys < settings.largest {
        writeln!(text, "\nNot enough memory for {} keys.", count(settings.largest))?;
    }
    Ok(())
}

fn write_sweeps(text: &mut String, results: &Results) -> Result {
    if results.sweeps.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nA sweep over a million keys, in milliseconds.\n")?;
    writeln!(
        text,
        "| stale | tidegate `cleanup_stale` | governor `retain_recent` | governor / ours |"
    )?;
    writeln!(text, "| --- | --- | --- | ---: |")?;
    for sweep in &results.sweeps {
        let ratio = sweep.governor.median / sweep.ours.median;
        let [ours, governor] = [&sweep.ours, &sweep.governor].map(cell);
        writeln!(text, "| {} | {ours} | {governor} | {ratio:.2} |", sweep.stale.name())?;
    }
    Ok(())
}

fn write_goals(text: &mut String, results: &Results) -> Result {
    let goals = goals(results);
    if goals.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n| goal | wanted | reached | |\n| --- | --- | ---: | --- |")?;
    for goal in goals {
        let word = if goal.is_met() { "met" } else { "missed" };
        writeln!(text, "| {} | {} | {:.2} | {word} |", goal.what, goal.wanted, goal.reached)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::QUICK;
    use crate::core::axis::growth::Size;
    use crate::core::axis::{Axis, Case};
    use crate::core::results::Point;
    use crate::measure::summary;

    fn results() -> Results {
        let roles = Role::KEYED.into_iter().zip([100.0, 120.0, 130.0, 500.0, 300.0, 80.0]);
        let figures = roles.map(|(role, nanos)| (role, summary(&[nanos], 0))).collect();
        let point = Point { axis: Axis::Keyed, case: Case::Million, threads: 2, figures };
        let [ours, floor, idle] = [60.0, 40.0, 5.0].map(|nanos| summary(&[nanos], 0));
        Results {
            points: vec![point],
            growth: vec![Size { keys: 100_000, ours, floor, idle }],
            ..Results::default()
        }
    }

    #[test]
    fn ratios_divide_the_right_medians() {
        let text = tables(&results(), QUICK);
        assert!(text.contains("| 1 M keys | 2 | 100.0 [100.0 .. 100.0] | 120.0"), "{text}");
        assert!(text.contains("| 80.0 [80.0 .. 80.0] | 5.00 | 3.00 | 1.25 |"), "{text}");
        assert!(
            text.contains("| 100 k | 60.0 [60.0 .. 60.0] | 40.0 [40.0 .. 40.0] | 1.50 |"),
            "{text}"
        );
        assert!(
            text.contains(
                "| 1 M keys, 2 threads: governor / ours | at least 4 (aim 5) | 5.00 | met |"
            ),
            "{text}"
        );
    }

    #[test]
    fn what_was_not_measured_has_no_table() {
        let text = tables(&results(), QUICK);
        assert!(text.contains("Not enough memory for 1 M keys"), "{text}");
        assert!(!text.contains("sixteen") && !text.contains("sweep") && !text.contains("Bytes"));
    }

    #[test]
    fn a_table_has_as_many_columns_in_every_line() {
        let text = tables(&results(), QUICK);
        let columns = |line: &str| line.matches('|').count();
        let lines: Vec<_> = text.lines().collect();
        let tables = lines.windows(3).filter(|lines| lines[1].contains("---"));
        let tables: Vec<_> =
            tables.map(|lines| [0, 1, 2].map(|line| columns(lines[line]))).collect();
        assert_eq!(tables.len(), 3);
        assert!(tables.iter().all(|table| *table == [table[0]; 3]), "{tables:?}\n{text}");
    }
}
