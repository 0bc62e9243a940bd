//! `replay`: lines per second of `tidegate simulate`, beside `wc -l` and a count per key in awk.
//!
//! Each program reads the same generated access log, in turns. Processor time is measured, as the
//! shell reports it, because it depends less on what else the machine does than wall-clock time.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::progress;

/// Lines in the log, and clients in them.
const LINES: u64 = 2_000_000;
const CLIENTS: u64 = 50_000;

/// Number of runs of each program.
pub(crate) const THOROUGH: usize = 7;
/// Number of runs for a quick overview.
pub(crate) const QUICK: usize = 3;

/// A program that reads the log, as a shell command with the log as `$0` and tidegate as `$1`.
const PROGRAMS: [(&str, &str); 5] = [
    ("`wc -l`", "wc -l < \"$0\""),
    ("awk, count per client", "LC_ALL=C awk '{ n[$1]++ } END { print length(n) }' \"$0\""),
    ("`simulate`, one policy", "\"$1\" simulate --log \"$0\" --policy 'capacity=10,rate=1/s'"),
    (
        "`simulate`, four policies",
        "\"$1\" simulate --log \"$0\" --policy 'capacity=10,rate=1/s' --policy rate=1/s \
         --policy 'capacity=100,rate=7/min' --policy 'capacity=5,rate=1000/day'",
    ),
    ("`suggest`", "\"$1\" suggest --log \"$0\""),
];

/// Generates the log, runs the programs in turns, and prints a table.
pub(crate) fn run(rounds: usize, tidegate: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("access.log");
    write_log(&log).context("cannot write the log")?;
    let mut seconds = vec![Vec::new(); PROGRAMS.len()];
    let bar = progress::bar((rounds * PROGRAMS.len()) as u64)?;
    for _ in 0..rounds {
        for ((name, command), seconds) in PROGRAMS.iter().zip(&mut seconds) {
            bar.set_message(*name);
            seconds.push(processor_seconds(command, &log, tidegate)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let medians: Vec<f64> = seconds.iter_mut().map(|runs| median(runs)).collect();
    println!("| program | processor s | million lines/s | time / `wc -l` | time / awk |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for ((name, _), median) in PROGRAMS.iter().zip(&medians) {
        let rate = LINES as f64 / 1e6 / median;
        let (wc, awk) = (median / medians[0], median / medians[1]);
        println!("| {name} | {median:.2} | {rate:.1} | {wc:.1} | {awk:.2} |");
    }
    Ok(())
}

/// Writes lines in the combined format. A few clients send most requests; all is the same in every
/// run.
fn write_log(path: &Path) -> Result<()> {
    let mut log = BufWriter::new(File::create(path)?);
    let mut state = 1_u64;
    for line in 0..LINES {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (state >> 33) % CLIENTS;
        let client = uniform * uniform / CLIENTS;
        let second = line / 100;
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        writeln!(
            log,
            "10.{}.{}.{} - - [10/Oct/2024:{hour:02}:{minute:02}:{second:02} +0000] \
             \"GET /api/v1/items/{uniform}?page=2 HTTP/1.1\" 200 {} \"https://example.org/list\" \
             \"Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0\"",
            client >> 16,
            client >> 8 & 255,
            client & 255,
            state >> 50,
        )?;
    }
    Ok(log.flush()?)
}

/// Runs a command and returns the processor time that the shell reports for it.
fn processor_seconds(command: &str, log: &Path, tidegate: &Path) -> Result<f64> {
    let script = format!("({command}) > /dev/null && times");
    let output = Command::new("/bin/sh").arg("-c").arg(script).arg(log).arg(tidegate).output()?;
    ensure!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    // The second line is the time of the commands: `0m1.230000s 0m0.040000s`.
    let Some(times) = text.lines().nth(1) else { bail!("`times` printed {text:?}") };
    times.split_whitespace().map(|time| seconds(time).with_context(|| text.clone())).sum()
}

fn seconds(time: &str) -> Option<f64> {
    let (minutes, seconds) = time.strip_suffix('s')?.split_once('m')?;
    Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
}

fn median(runs: &mut [f64]) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_shell_are_read() {
        assert_eq!(seconds("1m2.500000s"), Some(62.5));
        assert_eq!(seconds("0m0.04s"), Some(0.04));
        assert_eq!(seconds("0.04"), None);
        let command = "i=0; while [ $i -lt 1000 ]; do i=$((i + 1)); done";
        assert!(processor_seconds(command, Path::new("/dev/null"), Path::new("x")).unwrap() < 60.0);
        assert!(processor_seconds("exit 3", Path::new("x"), Path::new("x")).is_err());
    }
}
