//! The tables of `durable`, as Markdown.

use std::fmt::{Result, Write as _};

use super::contender::Role;
use super::scripts::{PackageTime, Packages, Sweep};
use super::{Effort, Row};
use crate::machine;
use crate::report::cell;

/// Maximum ratio of p99 during a sweep to p99 without one.
const MAX_SWEEP_RATIO: f64 = 2.0;

/// Formats all measurements, with the notes needed to read them.
pub(super) fn tables(rows: &[Row], effort: Effort, sweep: &Sweep, packages: &Packages) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_decisions(&mut text, rows, effort);
    let _ = write_sweep(&mut text, sweep);
    let _ = write_packages(&mut text, packages);
    text
}

fn write_decisions(text: &mut String, rows: &[Row], effort: Effort) -> Result {
    writeln!(
        text,
        "One decision on one key, all allowed, every decision writes; workerd with its storage on \
         disk, Redis and `tidegate serve` in memory, all on loopback. {} cores of {}, shared by \
         servers and callers. Median [min .. max] of {} runs of {} ms, contenders interleaved; \
         ratios are medians of the ratios of each round. Callers use a closed loop.\n",
        machine::cores().len().max(1),
        machine::processor().as_deref().unwrap_or("an unknown processor"),
        effort.rounds,
        effort.length.as_millis(),
    )?;
    writeln!(
        text,
        "| callers | limiter | decisions/s | of Redis | p50 us | p99 us | CPU us per decision: \
         server | clients |\n| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    )?;
    for row in rows {
        let of = |role| rows.iter().find(|o| o.callers == row.callers && o.role == role);
        let of_redis = of(Role::Redis).map_or(f64::NAN, |redis| row.ratio(redis, |run| run.rate));
        let time = |value: fn(&crate::closed_loop::Run) -> Option<f64>| {
            row.figure(|run| value(run).unwrap_or(f64::NAN)).median
        };
        writeln!(
            text,
            "| {} | {} | {} | {of_redis:.2} | {:.0} | {:.0} | {:.1} | {:.1} |",
            row.callers,
            row.role.name(),
            cell(&row.figure(|run| run.rate)),
            row.figure(|run| run.p50).median,
            row.figure(|run| run.p99).median,
            time(|run| run.server),
            time(|run| run.client),
        )?;
    }
    writeln!(text)
}

fn write_sweep(text: &mut String, sweep: &Sweep) -> Result {
    let Sweep { buckets, sweep_ms, normal, during, p99_ratio } = sweep;
    writeln!(
        text,
        "A shard deletes {buckets} idle buckets in {sweep_ms:.0} ms (median), with four callers in \
         a closed loop on other buckets of it.\n"
    )?;
    writeln!(text, "| | requests | p50 ms | p99 ms |\n| --- | ---: | ---: | ---: |")?;
    for (name, latency) in [("without a sweep", normal), ("during sweeps", during)] {
        let (requests, p50, p99) = (latency.requests, latency.p50_ms, latency.p99_ms);
        writeln!(text, "| {name} | {requests} | {p50:.2} | {p99:.2} |")?;
    }
    let word = word(*p99_ratio < MAX_SWEEP_RATIO);
    writeln!(text, "\np99 ratio {p99_ratio:.2}, wanted below {MAX_SWEEP_RATIO}: {word}\n")
}

fn write_packages(text: &mut String, packages: &Packages) -> Result {
    let Packages { node, decisions, rounds, results } = packages;
    writeln!(
        text,
        "Limiters in one Node process ({node}): nanoseconds per decision, median of {rounds} \
         rounds of {decisions} decisions. `limiter` has no keys and gets a `Map`; \
         `rate-limiter-flexible` counts in fixed windows.\n"
    )?;
    writeln!(text, "| keys | decisions | limiter | ns | it / ours | |")?;
    writeln!(text, "| ---: | --- | --- | ---: | ---: | --- |")?;
    for time in results {
        let PackageTime { keys, mix, name, ns, .. } = time;
        let ours = ours(results, time);
        let (ratio, word) = match ours {
            Some(ours) if ours.name != *name => {
                (format!("{:.2}", ns / ours.ns), word(ours.ns <= *ns))
            }
            _ => (String::new(), ""),
        };
        writeln!(text, "| {keys} | {mix} | {name} | {ns:.0} | {ratio} | {word} |")?;
    }
    Ok(())
}

/// Our time in the same setting.
fn ours<'r>(results: &'r [PackageTime], time: &PackageTime) -> Option<&'r PackageTime> {
    let is_same =
        |o: &&PackageTime| (o.keys, &o.mix, &o.kind) == (time.keys, &time.mix, &time.kind);
    results.iter().filter(is_same).find(|other| other.name.starts_with("tidegate"))
}

const fn word(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed_loop::Run;
    use crate::durable::scripts::Latency;

    #[test]
    fn ratios_are_those_of_rounds_and_goals_are_met_or_missed() {
        let run = |rate| Run {
            rate,
            p50: 100.0,
            p99: 200.0,
            server: Some(5.0),
            client: None,
            others: None,
        };
        let row = |role, rates: [f64; 3]| Row { role, callers: 16, runs: rates.map(run).into() };
        let rows = [
            row(Role::Worker, [1_000.0, 500.0, 2_000.0]),
            row(Role::Redis, [10_000.0, 2_500.0, 40_000.0]),
        ];
        let latency = |p99_ms| Latency { requests: 9, p50_ms: 1.0, p99_ms };
        let sweep = Sweep {
            buckets: 100_000,
            sweep_ms: 900.0,
            normal: latency(2.0),
            during: latency(4.4),
            p99_ratio: 2.2,
        };
        let time = |name: &str, ns| PackageTime {
            keys: 1,
            mix: "denied".to_owned(),
            kind: "async".to_owned(),
            name: name.to_owned(),
            ns,
        };
        let results =
            vec![time("tidegate consume", 100.0), time("slow", 150.0), time("fast", 90.0)];
        let packages = Packages { node: "v20".to_owned(), decisions: 7, rounds: 3, results };
        let text = tables(&rows, super::super::QUICK, &sweep, &packages);
        assert!(text.contains("`POST /consume` | 1000.0 [500.0 .. 2000.0] | 0.10 |"), "{text}");
        assert!(text.contains("p99 ratio 2.20, wanted below 2: missed"), "{text}");
        assert!(text.contains("| 1 | denied | slow | 150 | 1.50 | met |"), "{text}");
        assert!(text.contains("| 1 | denied | fast | 90 | 0.90 | missed |"), "{text}");
        assert!(text.contains("| 1 | denied | tidegate consume | 100 |  |  |"), "{text}");
    }
}
