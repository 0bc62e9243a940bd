//! `cargo xtask sanitize`: the tests that have threads, under ThreadSanitizer.
//!
//! The models explore interleavings of small programs whose atomics they replace; this watches
//! the real ones while real threads run, and reports accesses to memory that nothing orders. It
//! sees what meets in a run: threads that happen to run one after the other show nothing, so a
//! clean run is no proof, and a report is one. The standard library is compiled along, or its
//! locks and channels would look like races. All this is a feature of the compiler that is not
//! stable, hence the variable that allows it here and nowhere else.

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::project;
use crate::test_counts::TestCounts;
use crate::tools;

/// Tests that run under the sanitizer: those of a crate whose names have any of these words, but
/// for a few. No words mean all.
struct Suite {
    package: &'static str,
    words: &'static [&'static str],
    except: &'static [&'static str],
}

const SUITES: [Suite; 2] = [
    Suite {
        package: "tidegate-memory",
        words: &[],
        // One has no threads and takes minutes here, the other measures the memory of a process,
        // of which the sanitizer takes several times as much.
        except: &["decides_as_the_oracle_does", "ten_million_one_shot_keys"],
    },
    Suite { package: "tidegate", words: &["runtimes", "threads"], except: &[] },
];

/// Runs all suites. A race fails them.
pub(crate) fn run() -> Result<()> {
    let source = tools::rust_source()?;
    let host = host()?;
    let target = project::target_folder("sanitize")?;
    let mut all = TestCounts::default();
    for suite in SUITES {
        let mut command = process::cargo(["test", "--package", suite.package, "--all-features"]);
        command.args(["--lib", "--test", "it", "-Zbuild-std", "--target", &host]);
        command.arg("--target-dir").arg(&target).arg("--").args(suite.words);
        command.args(suite.except.iter().flat_map(|name| ["--skip", name]));
        command.env("RUSTC_BOOTSTRAP", "1").env("__CARGO_TESTS_ONLY_SRC_ROOT", &source);
        process::add_rust_flags(&mut command, "-Zsanitizer=thread");
        let mut counts = TestCounts::default();
        process::watch(command, |line| counts.parse_line(line)).context("see the reports above")?;
        if counts.passed == 0 {
            bail!("no test ran in {}: that proves nothing", suite.package);
        }
        all.add(counts);
    }
    println!("{all}, and ThreadSanitizer reports no race");
    Ok(())
}

/// The platform that this runs on, for which the standard library is compiled.
pub(crate) fn host() -> Result<String> {
    let mut rustc = std::process::Command::new("rustc");
    rustc.arg("-vV").current_dir(project::root());
    let output = process::read(rustc)?;
    let host = output.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not tell the host")?.to_owned())
}
