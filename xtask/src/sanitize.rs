//! `cargo xtask sanitize`: runs the multi-threaded tests under ThreadSanitizer.
//!
//! The models explore interleavings of small programs with replaced atomics. This observes the real
//! atomics and threads and reports unordered memory accesses. It only sees interleavings that occur
//! in the run, so a report proves a race, but a clean run does not prove that there is none. The
//! standard library is compiled too, because otherwise its locks and channels look like races. The
//! sanitizer is an unstable compiler feature, so `RUSTC_BOOTSTRAP` is set here only.

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::project;
use crate::test_counts::TestCounts;
use crate::tools;

/// Tests to run: those of a package whose names contain one of `words`, without `except`. Empty
/// `words` select all.
struct Suite {
    package: &'static str,
    words: &'static [&'static str],
    except: &'static [&'static str],
}

const SUITES: [Suite; 2] = [
    Suite {
        package: "tidegate-memory",
        words: &[],
        // The first has no threads and takes minutes here. The second measures process memory,
        // which the sanitizer multiplies.
        except: &["decides_as_the_oracle_does", "ten_million_one_shot_keys"],
    },
    Suite { package: "tidegate", words: &["runtimes", "threads"], except: &[] },
];

/// Runs all suites. A data race fails them.
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
            bail!("no test ran in {}", suite.package);
        }
        all.add(counts);
    }
    println!("{all}; ThreadSanitizer reported no race");
    Ok(())
}

/// The host platform, for which the standard library is compiled.
pub(crate) fn host() -> Result<String> {
    let mut rustc = std::process::Command::new("rustc");
    rustc.arg("-vV").current_dir(project::root());
    let output = process::read(rustc)?;
    let host = output.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc printed no host")?.to_owned())
}
