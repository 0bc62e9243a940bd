//! The tables of `gateway`, as Markdown.

use std::fmt::{Result, Write as _};

use super::axis::Axis;
use super::load::Slice;
use super::route::Route;
use super::upstream::{MORE_EVENTS, PER_EVENT};
use super::{Row, TURN};
use crate::machine;
use crate::measure::{Figure, summary};
use crate::report::cell;

/// Minimum throughput on fifty connections, relative to nginx.
const LEAST_RATE: f64 = 0.7;

/// Maximum of the added p50 on one connection, relative to nginx.
const MOST_ADDED: f64 = 1.5;

/// Formats all measurements, with the notes needed to read them.
pub(super) fn tables(rows: &[Row], rounds: usize, missing: Option<&str>) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_header(&mut text, rounds, missing);
    for axis in [Axis::Fifty, Axis::One, Axis::Streams] {
        let _ = write_axis(&mut text, rows, axis);
    }
    let _ = write_goals(&mut text, rows);
    text
}

fn write_header(text: &mut String, rounds: usize, missing: Option<&str>) -> Result {
    let cores = machine::cores().len().max(1);
    writeln!(
        text,
        "Calls to a provider on loopback that returns a kilobyte immediately: direct, through nginx \
         with proxy_pass, and through tidegate with limits on requests, tokens and concurrency \
         that are never reached. {cores} cores of {}, shared by the provider, the proxy \
         (with {cores} workers or threads) and the clients. Median [min .. max] of {rounds} turns of \
         {} ms; differences and ratios are within a round.",
        machine::processor().as_deref().unwrap_or("an unknown processor"),
        TURN.as_millis()
    )?;
    if let Some(reason) = missing {
        writeln!(text, "\nWithout nginx: {reason}.")?;
    }
    Ok(())
}

fn write_axis(text: &mut String, rows: &[Row], axis: Axis) -> Result {
    let (about, column) = match axis {
        Axis::Fifty | Axis::One => (format!("Whole answers, {}.", axis.name()), "of a call"),
        Axis::Streams => {
            let about = format!(
                "Streams, {} connections: an event at once, and {MORE_EVENTS} more, one every {} ms.",
                axis.connections(),
                PER_EVENT.as_millis()
            );
            (about, "to the first event")
        }
    };
    writeln!(text, "\n{about}\n")?;
    writeln!(
        text,
        "| way | calls/s | of direct | p50 {column}, us | added | p99, us | added | processor \
         time, us per call |"
    )?;
    writeln!(text, "| --- | --- | ---: | --- | ---: | --- | ---: | --- |")?;
    let Some(direct) = find(rows, axis, Route::Direct) else { return Ok(()) };
    for row in rows.iter().filter(|row| row.axis == axis) {
        let share = against(row, direct, |row, direct| row.rate / direct.rate);
        writeln!(
            text,
            "| {} | {} | {:.2} | {} | {} | {} | {} | {} |",
            row.route.name(),
            cell(&column_of(row, |slice| slice.rate)),
            share.median,
            cell(&column_of(row, |slice| slice.p50)),
            of_those_between(row, &against(row, direct, |row, direct| row.p50 - direct.p50)),
            cell(&column_of(row, |slice| slice.p99)),
            of_those_between(row, &against(row, direct, |row, direct| row.p99 - direct.p99)),
            of_those_between(row, &column_of(row, |slice| slice.processor)),
        )?;
    }
    Ok(())
}

fn write_goals(text: &mut String, rows: &[Row]) -> Result {
    let both = |axis| find(rows, axis, Route::Ours).zip(find(rows, axis, Route::Nginx));
    writeln!(text, "\n| goal, beside nginx | wanted | reached | |\n| --- | ---: | --- | --- |")?;
    if let Some((ours, nginx)) = both(Axis::Fifty) {
        let rate = against(ours, nginx, |ours, nginx| ours.rate / nginx.rate);
        let (reached, word) = (ratio(&rate), word(rate.median >= LEAST_RATE));
        writeln!(text, "| calls/s, 50 connections | at least {LEAST_RATE} | {reached} | {word} |")?;
    }
    let direct = find(rows, Axis::One, Route::Direct);
    if let (Some((ours, nginx)), Some(direct)) = (both(Axis::One), direct) {
        let added = |row| against(row, direct, |row, direct| row.p50 - direct.p50).median;
        let times = added(ours) / added(nginx);
        let word = word(times <= MOST_ADDED);
        writeln!(text, "| added p50, 1 connection | at most {MOST_ADDED} | {times:.2} | {word} |")?;
    }
    if let Some((ours, nginx)) = both(Axis::Fifty) {
        let cost = against(ours, nginx, |ours, nginx| ours.processor / nginx.processor);
        writeln!(text, "| processor time per call, 50 connections | | {} | |", ratio(&cost))?;
    }
    Ok(())
}

fn find(rows: &[Row], axis: Axis, route: Route) -> Option<&Row> {
    rows.iter().find(|row| row.axis == axis && row.route == route)
}

fn column_of(row: &Row, value: impl Fn(&Slice) -> f64) -> Figure {
    summary(&row.slices.iter().map(value).collect::<Vec<_>>(), 0)
}

/// Compares two rows by round, so that a disturbance affects both sides.
fn against(row: &Row, other: &Row, value: impl Fn(&Slice, &Slice) -> f64) -> Figure {
    let pairs = row.slices.iter().zip(&other.slices);
    summary(&pairs.map(|(row, other)| value(row, other)).collect::<Vec<_>>(), 0)
}

/// A value that the direct route does not have.
fn of_those_between(row: &Row, figure: &Figure) -> String {
    if row.route == Route::Direct { String::new() } else { cell(figure) }
}

fn ratio(figure: &Figure) -> String {
    format!("{:.2} [{:.2} .. {:.2}]", figure.median, figure.min, figure.max)
}

const fn word(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(axis: Axis, route: Route, rate: f64, p50: f64) -> Row {
        let slice = |noise: f64| Slice {
            rate: rate / noise,
            p50: p50 * noise,
            p99: p50 * noise * 2.0,
            processor: p50 / 10.0,
        };
        Row { axis, route, slices: [1.0, 2.0, 1.0].map(slice).to_vec() }
    }

    fn report(ours: [f64; 2]) -> String {
        let rows = [
            row(Axis::One, Route::Direct, 9_000.0, 50.0),
            row(Axis::One, Route::Nginx, 9_000.0, 150.0),
            row(Axis::One, Route::Ours, 9_000.0, ours[1]),
            row(Axis::Fifty, Route::Direct, 40_000.0, 90.0),
            row(Axis::Fifty, Route::Nginx, 20_000.0, 180.0),
            row(Axis::Fifty, Route::Ours, ours[0], 270.0),
        ];
        tables(&rows, 3, None)
    }

    #[test]
    fn goals_are_told_by_rounds() {
        let text = report([16_000.0, 180.0]);
        let rate = "| calls/s, 50 connections | at least 0.7 | 0.80 [0.80 .. 0.80] | met |";
        assert!(text.contains(rate), "{text}");
        assert!(text.contains("| added p50, 1 connection | at most 1.5 | 1.30 | met |"), "{text}");
        assert!(text.contains("| 1.50 [1.50 .. 1.50] | |"), "{text}");
        let text = report([13_000.0, 210.0]);
        assert!(text.contains("| 0.65 [0.65 .. 0.65] | missed |"), "{text}");
        assert!(text.contains("| 1.60 | missed |"), "{text}");
    }

    #[test]
    fn without_nginx_there_is_nothing_to_reach() {
        let text = tables(&[row(Axis::One, Route::Direct, 1.0, 1.0)], 1, Some("it is away"));
        assert!(text.contains("Without nginx: it is away."), "{text}");
        assert!(!text.contains("met") && !text.contains("missed"), "{text}");
    }
}
