//! Debian's package manager: packages that are installed, and packages that are only unpacked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::attempt;

/// A command of the package manager that asks no questions.
pub(super) fn apt_get(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.arg("-qq").args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null());
    command
}

/// Installs a package into the system, which takes its administrator.
pub(super) fn install(package: &str) -> Result<()> {
    println!("installing {package}");
    let install = || attempt(apt_get(&["install", "--yes", "--no-install-recommends", package]));
    install().or_else(|_| update().and_then(|()| install()))
}

/// Downloads packages and unpacks them; nothing of them is installed or started.
pub(super) fn unpack(into: &Path, packages: &[&str], options: &[&str]) -> Result<()> {
    let mut download = with(&["download"], options);
    download.args(packages).current_dir(into);
    attempt(download)?;
    for package in files_ending(into, ".deb")? {
        let mut extract = Command::new("dpkg-deb");
        extract.arg("-x").arg(package).arg(into);
        attempt(extract)?;
    }
    Ok(())
}

/// A fresh machine has no list of packages, and an old one has a list that is out of date.
pub(super) fn update() -> Result<()> {
    attempt(apt_get(&["update"]))
}

/// A command of the package manager. What it downloads it writes as the user that runs this.
pub(super) fn with(arguments: &[&str], options: &[&str]) -> Command {
    let mut command = apt_get(arguments);
    command.args(["-o", "APT::Sandbox::User=root"]).args(options);
    command
}

/// An empty folder beside the final one, which is removed if there is one.
pub(super) fn fresh_beside(home: &Path) -> Result<PathBuf> {
    let fresh = home.with_extension("new");
    for old in [home, &fresh] {
        if old.exists() {
            fs::remove_dir_all(old).context("cannot remove what was unpacked before")?;
        }
    }
    fs::create_dir_all(&fresh).context("cannot create a folder for tools")?;
    Ok(fresh)
}

pub(super) fn files_ending(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let paths: Vec<PathBuf> = paths.collect::<Result<_>>()?;
    Ok(paths.into_iter().filter(|path| path.to_string_lossy().ends_with(ending)).collect())
}
