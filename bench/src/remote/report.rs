//! The tables of `redis`, as Markdown.

mod goals;
mod outages;

use std::fmt::{Result, Write as _};

use super::axes::Point;
use super::contender::Role;
use super::{Effort, Figures, Row};
use crate::closed_loop::Run;
use crate::machine;
use crate::report::cell;

/// Formats all measurements, with the notes needed to read them.
pub(super) fn tables(figures: &Figures, effort: Effort) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_header(&mut text, figures, effort);
    let _ = write_rows(&mut text, &figures.rows);
    let _ = goals::write(&mut text, &figures.rows);
    let _ = outages::write(&mut text, &figures.outages, effort.outage);
    text
}

fn write_header(text: &mut String, figures: &Figures, effort: Effort) -> Result {
    writeln!(
        text,
        "Decisions through Redis {} on loopback, plain TCP, nothing on disk, all allowed (one \
         token per second, burst of a thousand million; every decision writes). {} cores of {}, \
         shared by the server and by callers on a runtime of two workers; nothing is pinned. \
         Median [min .. max] of {} runs of {} ms, contenders interleaved; runs in which \
         other processes used more than a tenth of the cores are repeated a limited number of \
         times, and then count as disturbed. Ratios are medians of the ratios of each round. \
         Callers use a closed loop: latencies at 50 and 500 callers include queueing, and that of \
         one caller is mostly the wake-up time of idle cores.\n",
        figures.server,
        machine::cores().len().max(1),
        machine::processor().as_deref().unwrap_or("an unknown processor"),
        effort.rounds,
        effort.length.as_millis(),
    )?;
    writeln!(
        text,
        "Tidegate uses its `Store` implementation, on one connection. Peers use the same client \
         with TCP_NODELAY, without response timeouts, with names built beforehand; a script for \
         several keys is all-or-nothing, a call per charge is not, and `INCR` decides nothing. A \
         connection per decision is opened for that decision only.\n"
    )?;
    match &figures.without_cell {
        None => writeln!(text, "redis-cell is version 0.2.2, the newest in the crate registry.\n"),
        Some(why) => writeln!(text, "redis-cell was not measured: {why}.\n"),
    }
}

fn write_rows(text: &mut String, rows: &[Row]) -> Result {
    writeln!(
        text,
        "| keys | charges | callers | limiter | thousand decisions/s | p50 us | p99 us | ours / \
         it: decisions/s | p50 | p99 | CPU us per decision: server | clients |"
    )?;
    writeln!(
        text,
        "| ---: | ---: | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )?;
    for row in rows {
        let Point { callers, charges, distribution } = row.point;
        let rate = cell(&row.figure(|run| run.rate / 1e3));
        let [p50, p99] = [row.figure(|run| run.p50), row.figure(|run| run.p99)];
        write!(text, "| {} | {} | {callers} ", distribution.name(), charges.count())?;
        write!(text, "| {} | {rate} ", row.role.name())?;
        write!(text, "| {:.0} | {:.0} ", p50.median, p99.median)?;
        match find(rows, row.point, Role::Ours).filter(|_| row.role != Role::Ours) {
            None => write!(text, "| | | ")?,
            Some(ours) => write!(
                text,
                "| {:.2} | {:.2} | {:.2} ",
                ours.ratio(row, |run| run.rate),
                ours.ratio(row, |run| run.p50),
                ours.ratio(row, |run| run.p99)
            )?,
        }
        let [server, clients] = [time(row, |run| run.server), time(row, |run| run.client)];
        writeln!(text, "| {server} | {clients} |")?;
    }
    writeln!(text)
}

fn find(rows: &[Row], point: Point, role: Role) -> Option<&Row> {
    rows.iter().find(|row| row.point == point && row.role == role)
}

/// The median of a time that may be unknown.
fn time(row: &Row, value: impl Fn(&Run) -> Option<f64>) -> String {
    let median = row.figure(|run| value(run).unwrap_or(f64::NAN)).median;
    if median.is_nan() { "unknown".to_owned() } else { format!("{median:.1}") }
}
