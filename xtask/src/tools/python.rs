//! Python with the official clients of providers, in an environment below the folder of builds.
//!
//! What it has is written down in a file, to the last digit. A copy of that file lies in the
//! environment once it is complete; when the two differ, the environment is made anew.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{debian, folder, is_overridden, run_quietly, runs};
use crate::project;

/// What the environment has, from the root of the repository.
const REQUIREMENTS: &str = "crates/tidegate-cli/tests/it/sdk/requirements.txt";

/// The copy in the environment.
const STAMP: &str = "installed.txt";

/// Makes the environment unless there is one with just what is required.
pub(super) fn install() -> Result<()> {
    if is_overridden("TIDEGATE_PYTHON") {
        return Ok(());
    }
    let required = project::root().join(REQUIREMENTS);
    let wanted = fs::read(&required).with_context(|| format!("cannot read {REQUIREMENTS}"))?;
    let home = folder().join("python");
    if is_complete(&home, &wanted) {
        return Ok(());
    }
    ensure_python()?;
    println!("installing the Python clients of providers, which takes a few minutes");
    make(&home, &required)?;
    // Last of all: an environment that was left half made is made anew.
    fs::write(home.join(STAMP), wanted).context("cannot write to the folder of tools")
}

fn is_complete(home: &Path, wanted: &[u8]) -> bool {
    let stamp = fs::read(home.join(STAMP));
    stamp.is_ok_and(|stamp| stamp == wanted)
        && runs(Command::new(home.join("bin/python3")).arg("--version"))
}

fn make(home: &Path, required: &Path) -> Result<()> {
    if home.exists() {
        fs::remove_dir_all(home).context("cannot remove an environment that is out of date")?;
    }
    fs::create_dir_all(folder()).context("cannot create a folder for tools")?;
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(home);
    run_quietly(make)?;
    let mut install = Command::new(home.join("bin/python3"));
    install.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "install"]);
    // Nothing is compiled here: that would take compilers that nobody was told of.
    install.args(["--only-binary", ":all:", "--requirement"]).arg(required);
    run_quietly(install).context("the Python clients of providers cannot be installed")
}

/// Python, with what makes environments. Debian keeps that in a package of its own.
fn ensure_python() -> Result<()> {
    let is_installed = || runs(Command::new("python3").args(["-c", "import ensurepip, venv"]));
    if is_installed() {
        return Ok(());
    }
    if let Err(error) = debian::install("python3-venv") {
        bail!("Python with venv is missing ({error:#}); run: sudo apt-get install python3-venv");
    }
    if !is_installed() {
        bail!("python3-venv was installed and python3 has no venv; try: python3 -m venv --help");
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
