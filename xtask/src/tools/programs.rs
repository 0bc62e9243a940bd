//! Installs programs of the system that tests run as they are. Nothing is started.

use std::process::Command;

use anyhow::{Result, bail};

use super::{debian, runs};

/// Programs with their Debian packages: they check units, pass sockets and render man pages.
const PROGRAMS: [(&str, &str); 3] = [
    ("systemd-analyze", "systemd"),
    ("systemd-socket-activate", "systemd"),
    ("groff", "groff-base"),
];

/// Installs the programs that are missing.
pub(super) fn install() -> Result<()> {
    for (program, package) in PROGRAMS {
        let is_installed = || runs(Command::new(program).arg("--version"));
        if is_installed() {
            continue;
        }
        if let Err(error) = debian::install(package) {
            bail!("{program} is missing ({error:#}); run: sudo apt-get install {package}");
        }
        if !is_installed() {
            bail!("{package} is installed but {program} does not run; try: {program} --version");
        }
    }
    Ok(())
}
