//! Creates Python virtual environments below the target folder: one with the official client
//! libraries of providers, for tests, and one with a peer, for a benchmark.
//!
//! A requirements file pins the contents. An environment has a copy of that file once it is
//! complete; if the two differ, the environment is recreated.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{debian, folder, is_overridden, run_quietly, runs};
use crate::project;

/// Path of the requirements file relative to the root.
const REQUIREMENTS: &str = "crates/tidegate-cli/tests/it/sdk/requirements.txt";

/// Name of the copy in the environment.
const STAMP: &str = "installed.txt";

/// Creates the environment unless it is up to date.
pub(super) fn install() -> Result<()> {
    if is_overridden("TIDEGATE_PYTHON") {
        return Ok(());
    }
    environment("python", REQUIREMENTS)
}

/// Creates an environment in a folder of the tools from a requirements file, whose path is relative
/// to the root, unless it is up to date.
pub(super) fn environment(name: &str, requirements: &str) -> Result<()> {
    let required = project::root().join(requirements);
    let wanted = fs::read(&required).with_context(|| format!("cannot read {requirements}"))?;
    let home = folder().join(name);
    if is_complete(&home, &wanted) {
        return Ok(());
    }
    ensure_python()?;
    println!("installing the Python packages of {requirements}, which takes a few minutes");
    make(&home, &required)?;
    // Written last, so that an incomplete environment is recreated.
    fs::write(home.join(STAMP), wanted).context("cannot write to the tools folder")
}

fn is_complete(home: &Path, wanted: &[u8]) -> bool {
    let stamp = fs::read(home.join(STAMP));
    stamp.is_ok_and(|stamp| stamp == wanted)
        && runs(Command::new(home.join("bin/python3")).arg("--version"))
}

fn make(home: &Path, required: &Path) -> Result<()> {
    if home.exists() {
        fs::remove_dir_all(home).context("cannot remove the outdated environment")?;
    }
    fs::create_dir_all(folder()).context("cannot create the tools folder")?;
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(home);
    run_quietly(make)?;
    let mut install = Command::new(home.join("bin/python3"));
    install.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "install"]);
    // Binary packages only: compiling would require further tools.
    install.args(["--only-binary", ":all:", "--requirement"]).arg(required);
    run_quietly(install).context("cannot install the Python packages")
}

/// Ensures that Python has venv, which Debian has in a separate package.
fn ensure_python() -> Result<()> {
    let is_installed = || runs(Command::new("python3").args(["-c", "import ensurepip, venv"]));
    if is_installed() {
        return Ok(());
    }
    if let Err(error) = debian::install("python3-venv") {
        bail!("Python with venv is missing ({error:#}); run: sudo apt-get install python3-venv");
    }
    if !is_installed() {
        bail!("python3-venv is installed but python3 has no venv; try: python3 -m venv --help");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_requirement_is_pinned() {
        let text = fs::read_to_string(project::root().join(REQUIREMENTS)).unwrap();
        let packages = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let loose: Vec<&str> = packages.filter(|line| !line.contains("==")).collect();
        assert!(loose.is_empty(), "{loose:?}");
    }
}
