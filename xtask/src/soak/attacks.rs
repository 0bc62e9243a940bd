//! `cargo xtask soak attacks`: builds the program and attacks it with `bench`.

use std::path::PathBuf;

use anyhow::Result;

use crate::bench;
use crate::process;

/// Attacks the program for `minutes`.
pub(crate) fn run(minutes: u64, program: Option<PathBuf>) -> Result<()> {
    let program = match program {
        // Cargo runs the attackers in the workspace folder.
        Some(program) => std::path::absolute(program)?,
        None => bench::tidegate()?,
    };
    let mut command =
        process::cargo(["run", "--release", "--package", "tidegate-bench", "--", "attacks"]);
    command.arg("--minutes").arg(minutes.to_string()).arg("--tidegate").arg(program);
    process::run(command)
}
