//! `cargo xtask tools`: what the other steps need, installed where it is missing.
//!
//! Looking costs little, so every run of the tests looks. What can be unpacked below the folder
//! of builds is; only Debian's Redis and PostgreSQL, and what Python needs to make an environment,
//! are installed into the system. No service is started: tests start their own servers, on ports
//! of their own.

mod cargo_fuzz;
mod debian;
mod nginx;
mod postgres;
mod promtool;
mod python;
mod redis;
mod rust_source;
mod valkey;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::project;

pub(crate) use cargo_fuzz::install as cargo_fuzz;
pub(crate) use nginx::install as nginx;
pub(crate) use rust_source::install as rust_source;

/// Looks for everything and installs what is missing.
pub(crate) fn run() -> Result<()> {
    components()?;
    redis::install()?;
    valkey::install()?;
    postgres::install()?;
    promtool::install()?;
    python::install()
}

/// Two components of the toolchain, and git in a clone. These are not ours to install.
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

/// Where tools are unpacked. Tests look for them here, wherever cargo was told to build.
fn folder() -> PathBuf {
    project::root().join("target/tools")
}

/// Whether a command can be started and succeeds. It says nothing to the terminal.
fn runs(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Runs a command and keeps what it says for the error, if it fails.
fn run_quietly(mut command: Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {}", process::display(&command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last = stderr.lines().last().unwrap_or("it says nothing");
        bail!("{} failed: {last}", process::display(&command));
    }
    Ok(())
}

/// Whether a program is there and runs, which it does not if a library is missing.
fn is_server(program: impl AsRef<Path>) -> bool {
    runs(Command::new(program.as_ref()).arg("--version"))
}

/// Whether the environment names a program to be used instead of an installed one.
fn is_overridden(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| !value.is_empty())
}
