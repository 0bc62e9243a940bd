//! Installs the npm packages that tests and builds use, below the target folder: the Workers
//! runtime, the TypeScript compiler, a bundler, and peers for benchmarks.
//!
//! `xtask/npm` pins them, with all that they depend on. Their install scripts do not run. The
//! folder has a copy of the lock file once it is complete; if the two differ, the packages are
//! installed again. The folders with TypeScript get a link to the packages, so that they need no
//! copy of their own. Nothing of these packages is distributed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{debian, folder, run_quietly, runs};
use crate::process;
use crate::project;

/// Folder of the manifest and the lock file, relative to the root.
const MANIFESTS: &str = "xtask/npm";
const MANIFEST: &str = "package.json";
const LOCK: &str = "package-lock.json";

/// Name of the copy of the lock file that marks a complete installation.
const STAMP: &str = "installed.json";

/// The oldest version of Node with a usable test runner, which the packages need too.
const MIN_NODE: u32 = 20;

/// Folders with TypeScript and their depth below the root.
const LINKED: [(&str, usize); 3] =
    [("clients/typescript", 2), ("worker", 1), ("examples/worker", 2)];

/// Installs the packages unless they are up to date, and creates missing links to them.
pub(crate) fn install() -> Result<()> {
    packages("npm", MANIFESTS)?;
    for (folder, depth) in LINKED {
        link(&project::root().join(folder), depth)?;
    }
    Ok(())
}

/// Installs the packages of a folder with a manifest and a lock file, relative to the root, into a
/// folder of the tools, unless they are up to date.
pub(super) fn packages(name: &str, manifests: &str) -> Result<()> {
    let home = folder().join(name);
    let manifests = project::root().join(manifests);
    let lock = manifests.join(LOCK);
    let wanted = fs::read(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    if is_complete(&home, &wanted) {
        return Ok(());
    }
    ensure_node()?;
    println!("installing npm packages, which takes a minute");
    fill(&home, &manifests)?;
    // Written last, so that an incomplete installation is repeated.
    fs::write(home.join(STAMP), wanted).context("cannot write to the tools folder")
}

/// The path of a program of an installed package.
pub(crate) fn program(name: &str) -> PathBuf {
    folder().join("npm/node_modules/.bin").join(name)
}

/// An npm command that runs a script of the package in a folder, relative to the root.
pub(crate) fn script(folder: &str, name: &str) -> Command {
    let mut command = Command::new("npm");
    command.args(["run", "--silent", name]).current_dir(project::root().join(folder));
    // Otherwise npm may ask its registry for a newer npm.
    command.env("npm_config_update_notifier", "false");
    command
}

fn is_complete(home: &Path, wanted: &[u8]) -> bool {
    let stamp = fs::read(home.join(STAMP));
    stamp.is_ok_and(|stamp| stamp == wanted) && node_version().is_some_and(|node| node >= MIN_NODE)
}

fn fill(home: &Path, manifests: &Path) -> Result<()> {
    if home.exists() {
        fs::remove_dir_all(home).context("cannot remove the outdated npm packages")?;
    }
    fs::create_dir_all(home).context("cannot create the tools folder")?;
    for file in [MANIFEST, LOCK] {
        fs::copy(manifests.join(file), home.join(file)).context("cannot copy the npm manifest")?;
    }
    let mut command = Command::new("npm");
    command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(home);
    run_quietly(command).context("cannot install the npm packages")
}

/// Links the packages into a folder that exists. A folder in the place of the link stays: a
/// developer has installed packages there.
fn link(folder: &Path, depth: usize) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    let target = "../".repeat(depth) + "target/tools/npm/node_modules";
    match std::os::unix::fs::symlink(target, folder.join("node_modules")) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot link npm packages to {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Ensures that Node and npm are installed and new enough.
fn ensure_node() -> Result<()> {
    let has_npm = || runs(Command::new("npm").arg("--version"));
    for (package, is_missing) in [("nodejs", node_version().is_none()), ("npm", !has_npm())] {
        if is_missing && let Err(error) = debian::install(package) {
            bail!("{package} is missing ({error:#}); run: sudo apt-get install nodejs npm");
        }
    }
    match node_version() {
        Some(version) if version >= MIN_NODE && has_npm() => Ok(()),
        Some(version) if version < MIN_NODE => {
            bail!("this is Node {version}, but the tests need Node {MIN_NODE} or later; install it")
        }
        _ => bail!("Node and npm are installed but do not run; try: npm --version"),
    }
}

/// The major version of Node, if it is installed.
fn node_version() -> Option<u32> {
    let mut node = Command::new("node");
    node.arg("--version").stderr(std::process::Stdio::null());
    parse_version(&process::read_quietly(node)?)
}

/// Parses the major version in a text such as `v20.20.2`.
fn parse_version(output: &str) -> Option<u32> {
    output.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folders with manifests: for tests and builds, and for a benchmark.
    const ALL: [&str; 2] = [MANIFESTS, super::super::peers::NPM];

    fn read(folder: &str, file: &str) -> serde_json::Value {
        let path = project::root().join(folder).join(file);
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn every_package_is_pinned_and_locked() {
        for folder in ALL {
            let (manifest, lock) = (read(folder, MANIFEST), read(folder, LOCK));
            for (name, version) in manifest["devDependencies"].as_object().unwrap() {
                let version = version.as_str().unwrap();
                assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{name} {version}");
                let locked = &lock["packages"][format!("node_modules/{name}")];
                assert_eq!(locked["version"], version, "{name}");
            }
        }
    }

    #[test]
    fn the_lock_file_names_no_registry_and_has_all_digests() {
        for lock in ALL.map(|folder| read(folder, LOCK)) {
            let packages = lock["packages"].as_object().unwrap();
            for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
                assert!(package.get("resolved").is_none(), "{name}");
                assert!(package.get("integrity").is_some(), "{name}");
            }
        }
    }

    #[test]
    fn the_version_of_node_is_parsed() {
        assert_eq!(parse_version("v20.20.2\n"), Some(20));
        assert_eq!(parse_version("v8.0.0"), Some(8));
        assert_eq!(parse_version(""), None);
    }
}
