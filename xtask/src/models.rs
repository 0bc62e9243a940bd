//! Model checks of the in-process store and of the pacer: all interleavings (loom), or many random
//! ones (shuttle).
//!
//! Both replace atomics and locks with their own, selected by a compiler flag. So each has its own
//! target folder, and the usual build stays cached.

use anyhow::{Result, bail};

use crate::process;
use crate::project;
use crate::test_counts::TestCounts;

/// The tool that explores the interleavings.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Checker {
    /// Every interleaving of a small model.
    Loom,
    /// Many random interleavings of the full table and of a pacer's queue.
    Shuttle,
}

impl Checker {
    const fn name(self) -> &'static str {
        match self {
            Self::Loom => "loom",
            Self::Shuttle => "shuttle",
        }
    }

    /// The crates with models for this checker.
    const fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Loom => &["tidegate-memory"],
            Self::Shuttle => &["tidegate-memory", "tidegate"],
        }
    }
}

/// Runs the models of one checker and counts the tests.
pub(crate) fn check(checker: Checker, extra: &[&str], counts: &mut TestCounts) -> Result<()> {
    let name = checker.name();
    for package in checker.packages() {
        let before = counts.passed;
        let mut command = process::cargo(["test", "--package", package, "--release", "--lib"]);
        command.args(extra).arg("--target-dir").arg(project::target_folder(name)?);
        command.arg(format!("model_{name}"));
        process::add_rust_flags(&mut command, &format!("--cfg {name}"));
        process::watch(command, |line| counts.parse_line(line))?;
        if counts.passed == before {
            bail!("no test named model_{name} ran in {package}");
        }
    }
    Ok(())
}
