//! The report as Markdown, with the bounds.

use std::fmt::Write as _;

use super::callers::Calls;
use super::program::RunningProgram;
use super::provider;
use crate::measure::{as_float, percentiles};

/// Minimum share of successful calls.
const SUCCESS: f64 = 0.999;
/// Maximum growth factor of p99.
const SLOWER: f64 = 2.0;
/// The sum of the documented memory bounds: 512 MiB for bodies, 64 MiB for buckets, 64 MiB for
/// accounts and queues, and 128 MiB for the program and its connections.
const MEMORY: u64 = (512 + 64 + 64 + 128) << 20;

/// All measurements.
pub(super) struct Figures {
    pub(super) before: Calls,
    pub(super) attacked: Calls,
    pub(super) attempts: Vec<(&'static str, u64)>,
    pub(super) running: RunningProgram,
    pub(super) provider: provider::Figures,
}

/// A bound, the measured value, and whether it holds.
struct Bound {
    name: &'static str,
    seen: String,
    bound: String,
    holds: bool,
}

impl Figures {
    /// Formats the report, and returns it with the names of missed bounds.
    pub(super) fn report(mut self) -> (String, Option<String>) {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = self.write_calls(&mut text);
        let _ = self.write_attacks(&mut text);
        let bounds = self.bounds();
        let _ = write_bounds(&mut text, &bounds);
        let missed: Vec<&str> =
            bounds.iter().filter(|bound| !bound.holds).map(|bound| bound.name).collect();
        let missed = (!missed.is_empty()).then(|| missed.join(", "));
        (text, missed)
    }

    fn write_calls(&mut self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "| callers | calls | failed | chats p50 | p99 | decisions p50 | p99 |")?;
        writeln!(text, "| --- | ---: | ---: | ---: | ---: | ---: | ---: |")?;
        for (name, calls) in
            [("alone", &mut self.before), ("during the attack", &mut self.attacked)]
        {
            let (count, failures) = (calls.count(), calls.failures);
            let [chat_50, chat_99] = milliseconds(&mut calls.chats);
            let [take_50, take_99] = milliseconds(&mut calls.takes);
            writeln!(
                text,
                "| {name} | {count} | {failures} | {chat_50:.1} ms | {chat_99:.1} ms | \
                 {take_50:.1} ms | {take_99:.1} ms |"
            )?;
        }
        if let Some(failure) = &self.attacked.first_failure {
            writeln!(text, "\nThe first failure during the attack: {failure}.")?;
        }
        Ok(())
    }

    fn write_attacks(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n| attack | attempts |\n| --- | ---: |")?;
        for (name, attempts) in &self.attempts {
            writeln!(text, "| {name} | {attempts} |")?;
        }
        let provider::Figures { requests, unknown_keys, refused } = self.provider;
        writeln!(
            text,
            "\nThe provider got {requests} requests, {unknown_keys} of them with a key that it does \
             not know, and answered {refused} with 429. The program wrote {:.1} MB of log.\n",
            as_float(self.running.log_bytes()) / 1e6
        )
    }

    fn bounds(&mut self) -> Vec<Bound> {
        let calls = self.attacked.count().max(1);
        let success = 1.0 - as_float(self.attacked.failures) / as_float(calls);
        let [alone, attacked] = [&mut self.before, &mut self.attacked].map(|calls| {
            let mut all = [calls.chats.as_slice(), calls.takes.as_slice()].concat();
            milliseconds(&mut all)[1]
        });
        let (panics, alive) = (self.running.panics(), self.running.is_alive());
        let [rest, most] = self.running.memory;
        let mebibytes = |bytes: u64| bytes >> 20;
        vec![
            Bound {
                name: "calls that succeed",
                seen: format!("{:.3} %", success * 100.0),
                bound: format!("at least {:.1} %", SUCCESS * 100.0),
                holds: success >= SUCCESS,
            },
            Bound {
                name: "p99",
                seen: format!("{attacked:.1} ms, {:.2} times", attacked / alone),
                bound: format!("at most {SLOWER} times {alone:.1} ms"),
                holds: attacked <= alone * SLOWER,
            },
            Bound {
                name: "resident memory",
                seen: format!("{} MiB, {} MiB before", mebibytes(most), mebibytes(rest)),
                bound: format!("at most {} MiB", mebibytes(MEMORY)),
                holds: most <= MEMORY,
            },
            Bound {
                name: "panics",
                seen: panics.to_string(),
                bound: "none".to_owned(),
                holds: panics == 0,
            },
            Bound {
                name: "the program",
                seen: if alive { "runs" } else { "is gone" }.to_owned(),
                bound: "runs".to_owned(),
                holds: alive,
            },
        ]
    }
}

fn write_bounds(text: &mut String, bounds: &[Bound]) -> std::fmt::Result {
    writeln!(text, "| bound | seen | wanted | |\n| --- | --- | --- | --- |")?;
    for Bound { name, seen, bound, holds } in bounds {
        writeln!(
            text,
            "| {name} | {seen} | {bound} | {} |",
            if *holds { "held" } else { "MISSED" }
        )?;
    }
    Ok(())
}

/// p50 and p99 in milliseconds.
fn milliseconds(times: &mut [u64]) -> [f64; 2] {
    if times.is_empty() {
        return [f64::NAN; 2];
    }
    percentiles(times, [50, 99]).map(|micros| micros / 1e3)
}
