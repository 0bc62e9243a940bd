//! `cargo xtask soak fuzz`: every fuzz target under libFuzzer.
//!
//! The program is `fuzz/libfuzzer`, built by cargo-fuzz with coverage and AddressSanitizer. Its
//! corpus is kept below the target folder, so that the next run continues from there. An input that
//! crashes a target should be committed as a seed in `fuzz/seeds`.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::project;
use crate::sanitize;
use crate::tools;

/// Maximum input length, time per input in seconds, and memory in megabytes.
const BOUNDS: [&str; 3] = ["-max_len=16384", "-timeout=60", "-rss_limit_mb=3072"];
/// Number of output lines shown of a crashed target.
const LAST_LINES: usize = 40;

/// Result of one target.
struct Outcome {
    target: String,
    executions: u64,
    per_second: u64,
    peak_megabytes: u64,
    /// Path of the input that crashed it, or why it did not run.
    crash: Option<String>,
}

/// Fuzzes the named targets, or all if there are none, and prints a table.
pub(crate) fn run(minutes: u64, names: &[String]) -> Result<()> {
    let targets = select(all_targets()?, names)?;
    let program = build()?;
    let folder = project::target_folder("fuzz")?;
    let count = targets.len();
    let parallelism = thread::available_parallelism().map_or(1, NonZero::get).min(count);
    println!("{count} targets, {minutes} minutes each, {parallelism} in parallel");
    let (queue, outcomes) = (Mutex::new(VecDeque::from(targets)), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..parallelism {
            scope.spawn(|| {
                while let Some(target) = locked(&queue).pop_front() {
                    let outcome = fuzz(&program, &folder, &target, minutes);
                    locked(&outcomes).push(outcome);
                }
            });
        }
    });
    report(locked(&outcomes).as_mut_slice())
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All targets; each has a folder of seeds.
fn all_targets() -> Result<Vec<String>> {
    let folder = project::root().join("fuzz/seeds");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).context("cannot list fuzz/seeds")? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn select(known: Vec<String>, names: &[String]) -> Result<Vec<String>> {
    if names.is_empty() {
        return Ok(known);
    }
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        bail!("unknown fuzz target {unknown}; known targets are {}", known.join(", "));
    }
    Ok(names.to_vec())
}

/// Builds the libFuzzer program and returns its path.
fn build() -> Result<PathBuf> {
    let tools = tools::cargo_fuzz()?;
    let (host, target) = (sanitize::host()?, project::target_folder("libfuzzer")?);
    let folder = project::root().join("fuzz/libfuzzer");
    // The crate is outside the workspace; this copy gives it the same versions.
    fs::copy(project::root().join("Cargo.lock"), folder.join("Cargo.lock"))
        .context("cannot copy Cargo.lock")?;
    let mut command = process::cargo(["fuzz", "build", "--fuzz-dir"]);
    command.arg(&folder).arg("--target-dir").arg(&target).arg("target");
    // Coverage and sanitizers are unstable compiler features.
    command.env("RUSTC_BOOTSTRAP", "1").env("PATH", tools);
    process::run(command)?;
    Ok(target.join(host).join("release").join("target"))
}

/// Fuzzes one target and prints its progress.
fn fuzz(program: &Path, folder: &Path, target: &str, minutes: u64) -> Outcome {
    let mut outcome = Outcome {
        target: target.to_owned(),
        executions: 0,
        per_second: 0,
        peak_megabytes: 0,
        crash: None,
    };
    println!("{target}: started");
    match watch(program, folder, &mut outcome, minutes) {
        Ok(()) => {}
        Err(error) => outcome.crash = Some(format!("{error:#}")),
    }
    outcome
}

fn watch(program: &Path, folder: &Path, outcome: &mut Outcome, minutes: u64) -> Result<()> {
    let target = &outcome.target.clone();
    let (corpus, crashes) = (folder.join("corpus").join(target), folder.join("crashes"));
    fs::create_dir_all(&corpus).and_then(|()| fs::create_dir_all(&crashes))?;
    let mut command = Command::new(program);
    command.args(BOUNDS).arg(format!("-max_total_time={}", minutes * 60));
    command.arg("-print_final_stats=1");
    command.arg(format!("-artifact_prefix={}/{target}-", crashes.display()));
    command.arg(corpus).arg(project::root().join("fuzz/seeds").join(target));
    command.env("TIDEGATE_FUZZ_TARGET", target).env("ASAN_OPTIONS", "detect_odr_violation=0");
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start the libFuzzer program")?;
    let mut last = VecDeque::new();
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            outcome.parse_line(&line);
            if line.contains("pulse") {
                println!("{target}: {line}");
            }
            last.push_back(line);
            if last.len() > LAST_LINES {
                last.pop_front();
            }
        }
    }
    if child.wait()?.success() {
        return Ok(());
    }
    last.iter().for_each(|line| println!("{target}: {line}"));
    let file =
        last.iter().find_map(|line| Some(line.split_once("Test unit written to ")?.1.to_owned()));
    bail!(file.unwrap_or_else(|| "crashed without writing an input".to_owned()))
}

impl Outcome {
    /// Reads the statistics in a line of libFuzzer's output.
    fn parse_line(&mut self, line: &str) {
        let Some((name, value)) = line.strip_prefix("stat::").and_then(|stat| stat.split_once(':'))
        else {
            return;
        };
        let Ok(value) = value.trim().parse() else { return };
        match name {
            "number_of_executed_units" => self.executions = value,
            "average_exec_per_sec" => self.per_second = value,
            "peak_rss_mb" => self.peak_megabytes = value,
            _ => {}
        }
    }
}

fn report(outcomes: &mut [Outcome]) -> Result<()> {
    outcomes.sort_by(|one, other| one.target.cmp(&other.target));
    println!("\n| target | executions | per second | peak memory | crash |");
    println!("| --- | ---: | ---: | ---: | --- |");
    for outcome in &*outcomes {
        let Outcome { target, executions, per_second, peak_megabytes, crash } = outcome;
        let crash = crash.as_deref().unwrap_or("none");
        println!("| {target} | {executions} | {per_second} | {peak_megabytes} MB | {crash} |");
    }
    let crashed = outcomes.iter().filter(|outcome| outcome.crash.is_some()).count();
    if crashed > 0 {
        bail!("{crashed} targets crashed; fix the parsers, and commit the inputs to fuzz/seeds");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_read_from_the_output_of_libfuzzer() {
        let mut outcome = Outcome {
            target: "sse".to_owned(),
            executions: 0,
            per_second: 0,
            peak_megabytes: 0,
            crash: None,
        };
        for line in [
            "#2\tINITED cov: 5 ft: 6 corp: 1/1b exec/s: 0 rss: 40Mb",
            "stat::number_of_executed_units: 4711",
            "stat::average_exec_per_sec:     32",
            "stat::peak_rss_mb:              51",
        ] {
            outcome.parse_line(line);
        }
        assert_eq!(
            (outcome.executions, outcome.per_second, outcome.peak_megabytes),
            (4_711, 32, 51)
        );
    }

    #[test]
    fn an_unknown_target_is_reported_with_the_known_ones() {
        let known = vec!["config".to_owned(), "sse".to_owned()];
        assert_eq!(select(known.clone(), &[]).unwrap(), known);
        assert_eq!(select(known.clone(), &["sse".to_owned()]).unwrap(), ["sse"]);
        let error = select(known, &["see".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("config, sse"), "{error}");
    }
}
