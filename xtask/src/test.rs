//! `cargo xtask test`: runs all checks, the cheapest first.

use std::env;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::models::{self, Checker};
use crate::process;
use crate::test_counts::TestCounts;
use crate::{api, features, no_std, settings, tidy, tools, typescript, vectors, wasm, worker};

/// Runs the steps until one fails. The last line has the numbers of passed and failed tests.
pub(crate) fn run() -> ExitCode {
    let mut session = Session::start();
    let outcome = steps(&mut session);
    if let Err(error) = &outcome {
        eprintln!("\nerror: {error:#}");
    }
    println!("\nall steps took {}", seconds(session.started.elapsed()));
    println!("{}", session.counts);
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn steps(session: &mut Session) -> Result<()> {
    // A build server must not change the lock file; a developer who adds a dependency must.
    let locked: &[&str] = if env::var_os("CI").is_some() { &["--locked"] } else { &[] };
    session.step("tools", tools::run)?;
    session.step("formatting", || process::run(process::cargo(["fmt", "--all", "--check"])))?;
    session.step("lints", || clippy(locked))?;
    session.step("tidy", tidy::run)?;
    session.step("vectors", || vectors::check_with(locked))?;
    session.step("settings", || settings::check_with(locked))?;
    session.step("documentation", || documentation(locked))?;
    session.step("public API", || api::check_with(locked))?;
    session.step("the core without std", no_std::check)?;
    session.step("WebAssembly", wasm::check)?;
    session.step("the Worker's bundle", worker::bundle)?;
    session.step("feature combinations", || features::check(locked))?;
    session.tests("tests", |counts| tests(locked, counts))?;
    session.tests("TypeScript", typescript::check)?;
    session.tests("models, loom", |counts| models::check(Checker::Loom, locked, counts))?;
    session.tests("models, shuttle", |counts| models::check(Checker::Shuttle, locked, counts))
}

fn clippy(locked: &[&str]) -> Result<()> {
    let mut command = process::cargo(["clippy", "--workspace", "--all-targets", "--all-features"]);
    command.args(locked).args(["--", "-D", "warnings"]);
    process::run(command)
}

/// Fails on broken links in the documentation, of all libraries with all features, and of published
/// ones also without features. The program is left out because it has the name of a library.
fn documentation(locked: &[&str]) -> Result<()> {
    let document = |arguments: &[&str]| {
        let mut command = process::cargo(["doc", "--no-deps", "--lib"]);
        command.args(arguments).args(locked).env("RUSTDOCFLAGS", "-D warnings");
        process::run(command)
    };
    document(&["--workspace", "--all-features"])?;
    // Separately, because cargo would unify their features otherwise.
    for name in api::PUBLISHED {
        document(&["--quiet", "--no-default-features", "--package", name])?;
    }
    Ok(())
}

fn tests(locked: &[&str], counts: &mut TestCounts) -> Result<()> {
    let mut command = process::cargo(["test", "--workspace", "--all-features", "--no-fail-fast"]);
    command.args(locked);
    process::watch(command, |line| counts.parse_line(line))
}

/// Test counts and start time of a run.
struct Session {
    counts: TestCounts,
    started: Instant,
}

impl Session {
    fn start() -> Self {
        Self { counts: TestCounts::default(), started: now() }
    }

    /// Runs a step without tests. A failure counts as one failed test, so that the last line of a
    /// failed run never says "0 failed".
    fn step(&mut self, title: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.tests(title, |_| work())
    }

    /// Runs a step that counts tests. It also fails if a test was ignored.
    fn tests(
        &mut self,
        title: &str,
        work: impl FnOnce(&mut TestCounts) -> Result<()>,
    ) -> Result<()> {
        println!("\n== {title}");
        let started = now();
        let mut counts = TestCounts::default();
        let mut outcome = work(&mut counts);
        if outcome.is_ok() && counts.not_passed() > 0 {
            outcome = Err(anyhow::anyhow!(
                "{} tests were ignored; a test that cannot run is a failed test",
                counts.ignored
            ));
        }
        if outcome.is_err() && counts.not_passed() == 0 {
            counts.failed = 1;
        }
        self.counts.add(counts);
        println!("-- {title}: {}", seconds(started.elapsed()));
        outcome.map_err(|error| error.context(format!("the step \"{title}\" failed")))
    }
}

#[allow(clippy::disallowed_methods, reason = "only the printed duration depends on it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_failed_step_is_a_failed_test() {
        let mut session = Session::start();
        assert!(session.step("fine", || Ok(())).is_ok());
        let error = session.step("broken", || bail!("no")).unwrap_err();
        assert_eq!(format!("{error:#}"), "the step \"broken\" failed: no");
        assert_eq!(session.counts.to_string(), "0 passed, 1 failed");
    }

    #[test]
    fn failed_tests_are_not_counted_twice_and_ignored_ones_fail() {
        let mut session = Session::start();
        let failing = |counts: &mut TestCounts| {
            counts.parse_line("test result: FAILED. 3 passed; 2 failed; 0 ignored");
            bail!("no")
        };
        assert!(session.tests("failing", failing).is_err());
        assert_eq!(session.counts.to_string(), "3 passed, 2 failed");
        let ignoring = |counts: &mut TestCounts| {
            counts.parse_line("test result: ok. 1 passed; 0 failed; 1 ignored");
            Ok(())
        };
        assert!(session.tests("ignoring", ignoring).is_err());
        assert_eq!(session.counts.to_string(), "4 passed, 3 failed");
    }
}
