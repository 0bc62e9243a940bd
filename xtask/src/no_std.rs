//! Checks that the core links and runs without the standard library.
//!
//! `xtask/no-std` is a program with its own panic handler and allocator. If anything below the
//! core pulled in `std`, the two panic handlers would clash and the build would fail.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;
use crate::project;

/// Builds the program and runs it.
pub(crate) fn check() -> Result<()> {
    let folder = project::root().join("xtask/no-std");
    // The crate is outside the workspace; this copy gives it the same versions.
    fs::copy(project::root().join("Cargo.lock"), folder.join("Cargo.lock"))
        .context("cannot copy Cargo.lock")?;
    // `cargo fmt --all` does not include a crate outside the workspace.
    let mut command = process::cargo(["fmt", "--check", "--manifest-path"]);
    command.arg(folder.join("Cargo.toml"));
    process::run(command)?;
    let target = project::target_folder("no-std")?;
    let mut command = process::cargo(["build", "--release", "--manifest-path"]);
    command.arg(folder.join("Cargo.toml")).arg("--target-dir").arg(&target);
    process::run(command)?;
    let program = target.join("release").join("tidegate-no-std");
    process::run(Command::new(program)).context("the core returned a wrong decision without std")
}
