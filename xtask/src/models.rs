//! Model checks of the in-process store and of the pacer: every interleaving (loom) and many
//! (shuttle).
//!
//! Both replace the atomics and locks by their own, chosen by a compiler flag, so each builds
//! into a folder of its own and the usual build stays warm.

use anyhow::{Result, bail};

use crate::process;
use crate::project;
use crate::test_counts::TestCounts;

/// Which checker explores the interleavings.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Checker {
    /// Every interleaving of a small model.
    Loom,
    /// Many random interleavings of the whole table and of the queue of a pacer.
    Shuttle,
}

impl Checker {
    const fn name(self) -> &'static str {
        match self {
            Self::Loom => "loom",
            Self::Shuttle => "shuttle",
        }
    }

    /// The crates with models for it.
    const fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Loom => &["tidegate-memory"],
            Self::Shuttle => &["tidegate-memory", "tidegate"],
        }
    }
}

/// Runs the models of one checker and counts them.
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
            bail!("no test named model_{name} ran in {package}: that proves nothing");
        }
    }
    Ok(())
}
