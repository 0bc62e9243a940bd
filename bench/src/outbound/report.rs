//! The tables of `outbound`, as Markdown.

use std::fmt::{Result, Write as _};

use super::cost::Part;
use super::race::{AGENTS, Run, WORKERS};
use super::role::Role;
use super::{Heat, Scenario};
use crate::machine;
use crate::measure::{Effort, Figure, as_float, summary};
use crate::report::cell;

/// Formats all measurements, with the notes needed to read them.
pub(super) fn tables(heats: &[Heat], costs: &[Figure], effort: Effort) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_header(&mut text, effort);
    for heat in heats {
        let _ = write_heat(&mut text, heat);
    }
    let _ = write_legend(&mut text);
    let _ = write_costs(&mut text, costs, effort);
    text
}

fn write_header(text: &mut String, effort: Effort) -> Result {
    writeln!(
        text,
        "Calls to a simulated provider (OpenAI's dialect, requests counted in slices of one \
         second, failed calls count), in virtual time: {WORKERS} workers of {AGENTS} agents that \
         start at once, answers after 0.2 to 0.9 s, a network of up to 20 ms. Median (worst) of {} \
         seeds.",
        effort.runs
    )
}

fn write_heat(text: &mut String, heat: &Heat) -> Result {
    let Scenario { name, calls, requests, tokens, .. } = heat.scenario;
    let optimum = summary(&heat.optimum, 0);
    writeln!(
        text,
        "\n{}: {calls} calls at {requests} requests and {tokens} tokens a minute. Optimum {:.1} \
         [{:.1} .. {:.1}] s.\n",
        capital(name),
        optimum.median,
        optimum.min,
        optimum.max
    )?;
    writeln!(
        text,
        "| who calls | done in, s | of the optimum | failed for good | 429s | of requests sent | \
         quota used |"
    )?;
    writeln!(text, "| --- | ---: | ---: | ---: | ---: | ---: | ---: |")?;
    for (role, runs) in Role::ALL.iter().zip(&heat.runs) {
        let took = column(runs, |run| run.took.as_secs_f64());
        let pairs = runs.iter().zip(&heat.optimum);
        let ratios: Vec<f64> =
            pairs.map(|(run, optimum)| run.took.as_secs_f64() / optimum).collect();
        let ratio = summary(&ratios, 0);
        let failed = column(runs, |run| as_float(run.failed));
        let throttled = column(runs, |run| as_float(run.throttled));
        let share = column(runs, |run| percent(run.throttled, run.sent));
        let used = column(runs, |run| run.used * 100.0);
        writeln!(
            text,
            "| {} | {:.1} ({:.1}) | {:.3} ({:.3}) | {:.0} ({:.0}) | {:.0} ({:.0}) | {:.1} % \
             ({:.1} %) | {:.1} % ({:.1} %) |",
            role.name(),
            took.median,
            took.max,
            ratio.median,
            ratio.max,
            failed.median,
            failed.max,
            throttled.median,
            throttled.max,
            share.median,
            share.max,
            used.median,
            used.min,
        )?;
    }
    Ok(())
}

fn write_legend(text: &mut String) -> Result {
    writeln!(
        text,
        "\nThe optimum is the earliest time at which the provider can admit the last call: the start \
         of the slice of the last request, or the time when its token bucket, which starts full, has \
         refilled enough; it does not include the last response. Calls that failed for good do not \
         count as used quota, and shorten the time of their client. Two processes: each of ours has \
         its own store and half of the limits; each hand-written bucket has the full limit. Calls and \
         random numbers depend on the seed only, so equal rows in two tables are the same run, in \
         which the differing limit or bucket had no effect.\n"
    )
}

fn write_costs(text: &mut String, costs: &[Figure], effort: Effort) -> Result {
    writeln!(
        text,
        "Overhead of a call on the client: {}, one task that never waits, immediate responses. \
         Median [min .. max] of {} runs of about 100 ms, interleaved.\n",
        machine::processor().as_deref().unwrap_or("an unknown processor"),
        effort.runs
    )?;
    writeln!(text, "| | ns per call | added |\n| --- | --- | ---: |")?;
    let median = |wanted: Part| {
        let mut parts = Part::ALL.iter().zip(costs);
        parts.find(|(part, _)| **part == wanted).map_or(f64::NAN, |(_, figure)| figure.median)
    };
    for (part, figure) in Part::ALL.into_iter().zip(costs) {
        let added = figure.median - median(part.base());
        writeln!(text, "| {} | {} | {added:.0} |", part.name(), cell(figure))?;
    }
    Ok(())
}

fn column(runs: &[Run], value: impl Fn(&Run) -> f64) -> Figure {
    summary(&runs.iter().map(value).collect::<Vec<_>>(), 0)
}

fn percent(part: u64, all: u64) -> f64 {
    as_float(part) * 100.0 / as_float(all.max(1))
}

/// Capitalizes the first letter.
fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measure::QUICK;

    #[test]
    fn the_worst_is_the_longest_time_and_the_least_use() {
        let run = |seconds, used| Run {
            took: Duration::from_secs(seconds),
            failed: 1,
            sent: 1_000,
            throttled: 250,
            used,
        };
        let runs = vec![run(120, 0.9), run(150, 0.7), run(110, 0.8)];
        let optimum = vec![100.0; 3];
        let heat = Heat { scenario: Scenario::ALL[0], optimum, runs: vec![runs] };
        let figure = |median| Figure { median, min: median, max: median, disturbed: 0 };
        let costs = [10.0, 110.0, 210.0, 310.0, 1_000.0, 1_500.0].map(figure);
        let text = tables(&[heat], &costs, QUICK);
        let row =
            "120.0 (150.0) | 1.200 (1.500) | 1 (1) | 250 (250) | 25.0 % (25.0 %) | 80.0 % (70.0 %)";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| 1500.0 [1500.0 .. 1500.0] | 500 |"), "{text}");
        assert!(text.contains("Requests bind: 1200 calls at 600 requests"), "{text}");
    }
}
