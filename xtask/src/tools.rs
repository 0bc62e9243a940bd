//! `cargo xtask tools`: installs missing programs that the other tasks need.
//!
//! The check is cheap, so every test run does it. Programs are unpacked below the target folder
//! where possible; only Redis, PostgreSQL, systemd, groff, Python's venv, Node and the compiler for
//! WebAssembly are installed as Debian packages. No service is started: tests start their own servers on
//! their own ports.

mod cargo_fuzz;
mod debian;
mod faketime;
mod lintian;
mod nginx;
mod npm;
mod peers;
mod postgres;
mod programs;
mod promtool;
mod python;
mod redis;
mod rust_source;
mod valkey;
mod wasm;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::project;

pub(crate) use cargo_fuzz::install as cargo_fuzz;
pub(crate) use lintian::install as lintian;
pub(crate) use nginx::install as nginx;
pub(crate) use npm::{install as npm, program as npm_program, script as npm_script};
pub(crate) use peers::install as peers;
pub(crate) use rust_source::install as rust_source;
pub(crate) use wasm::{WasmToolchain, install as wasm};

/// Installs what is missing.
pub(crate) fn run() -> Result<()> {
    components()?;
    redis::install()?;
    valkey::install()?;
    postgres::install()?;
    promtool::install()?;
    programs::install()?;
    faketime::install()?;
    python::install()?;
    npm::install()?;
    wasm::install().map(drop)
}

/// Checks for rustfmt, clippy and, in a clone, git. The developer installs these.
fn components() -> Result<()> {
    for component in ["fmt", "clippy"] {
        if !runs(&mut process::cargo([component, "--version"])) {
            bail!("cargo {component} is missing; run: rustup component add rustfmt clippy");
        }
    }
    if project::is_clone() && !runs(&mut process::git(["--version"])) {
        bail!("git is missing; install it with the package manager of the system");
    }
    Ok(())
}

/// Folder for unpacked tools. Tests look for them here, even if cargo builds in another folder.
fn folder() -> PathBuf {
    project::root().join("target/tools")
}

/// Whether a command starts and succeeds. Its output is discarded.
fn runs(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Runs a command and includes its last line of output in the error if it fails.
fn run_quietly(mut command: Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {}", process::display(&command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last = stderr.lines().last().unwrap_or("no output");
        bail!("{} failed: {last}", process::display(&command));
    }
    Ok(())
}

/// Whether a program exists and runs; it does not if a library is missing.
fn is_server(program: impl AsRef<Path>) -> bool {
    runs(Command::new(program.as_ref()).arg("--version"))
}

/// Whether an environment variable names a program to use instead of an installed one.
fn is_overridden(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| !value.is_empty())
}
