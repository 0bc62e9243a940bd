//! Installs or unpacks Debian packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::run_quietly;
use crate::process;

/// Keyring of Debian's archive.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A non-interactive `apt-get` command.
pub(super) fn apt_get(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.arg("-qq").args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null());
    command
}

/// Installs a package into the system. Requires root.
pub(super) fn install(package: &str) -> Result<()> {
    println!("installing {package}");
    let install =
        || run_quietly(apt_get(&["install", "--yes", "--no-install-recommends", package]));
    install().or_else(|_| update().and_then(|()| install()))
}

/// Downloads and unpacks packages, without installing or starting anything.
pub(super) fn unpack(into: &Path, packages: &[&str], options: &[String]) -> Result<()> {
    let mut download = apt_get_with(&["download"], options);
    download.args(packages).current_dir(into);
    run_quietly(download)?;
    for package in files_ending(into, ".deb")? {
        let mut extract = Command::new("dpkg-deb");
        extract.arg("-x").arg(package).arg(into);
        run_quietly(extract)?;
    }
    Ok(())
}

/// Updates the package lists, which may be missing or out of date.
pub(super) fn update() -> Result<()> {
    run_quietly(apt_get(&["update"]))
}

/// An `apt-get` command with options, which downloads as the current user.
pub(super) fn apt_get_with(arguments: &[&str], options: &[String]) -> Command {
    let mut command = apt_get(arguments);
    command.args(["-o", "APT::Sandbox::User=root"]).args(options);
    command
}

/// Suites that are not among the system's sources. A separate configuration gives access to them
/// without changing the system's.
pub(super) struct Sources {
    folder: PathBuf,
}

impl Sources {
    /// Downloads the package lists of suites of a mirror to a folder.
    pub(super) fn new(into: &Path, mirror: &str, suites: &[String]) -> Result<Self> {
        let sources = Self { folder: into.join("apt") };
        for folder in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(sources.folder.join(folder))?;
        }
        let signed =
            if Path::new(KEYS).exists() { format!("[signed-by={KEYS}] ") } else { String::new() };
        let line = |suite| format!("deb {signed}{mirror} {suite} main\n");
        let lines: String = suites.iter().map(line).collect();
        fs::write(sources.folder.join("sources.list"), lines)?;
        run_quietly(apt_get_with(&["update"], &sources.options()))?;
        Ok(sources)
    }

    /// Options that make `apt` use only these suites.
    pub(super) fn options(&self) -> [String; 4] {
        let path = |name| self.folder.join(name).display().to_string();
        [
            format!("-oDir::Etc::sourcelist={}", path("sources.list")),
            "-oDir::Etc::sourceparts=-".to_owned(),
            format!("-oDir::State::lists={}", path("lists")),
            format!("-oDir::Cache={}", path("cache")),
        ]
    }

    /// The available versions of a package, as printed by `apt-cache madison`.
    pub(super) fn versions(&self, package: &str) -> Result<String> {
        let mut command = Command::new("apt-cache");
        command.args(self.options()).args(["madison", package]);
        process::read(command)
    }

    /// Removes the package lists.
    pub(super) fn remove(self) -> Result<()> {
        fs::remove_dir_all(self.folder).context("cannot remove the package lists")
    }
}

/// Returns the mirror and the code name of the system's main suite.
pub(super) fn main_suite() -> Result<(String, String)> {
    let format = "$(REPO_URI) $(CODENAME)";
    let targets = apt_get(&["indextargets", "--format", format, "Identifier: Packages"]);
    let targets = process::read(targets)?;
    let (mirror, suite) =
        first_main(&targets).context("the system has no Debian suite configured")?;
    Ok((mirror.to_owned(), suite.to_owned()))
}

/// The first suite without a suffix such as `-updates`. Each line has a mirror and a code name.
fn first_main(targets: &str) -> Option<(&str, &str)> {
    let mut suites = targets.lines().filter_map(|line| line.split_once(' '));
    suites.find(|(_, suite)| !suite.contains(['-', '/', '$', ' ']))
}

/// Removes the final folder if it exists, and creates an empty staging folder beside it.
pub(super) fn create_staging_folder(home: &Path) -> Result<PathBuf> {
    let staging = home.with_extension("new");
    for old in [home, &staging] {
        if old.exists() {
            fs::remove_dir_all(old).context("cannot remove a previous version of the tool")?;
        }
    }
    fs::create_dir_all(&staging).context("cannot create the tools folder")?;
    Ok(staging)
}

pub(super) fn files_ending(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let paths: Vec<PathBuf> = paths.collect::<Result<_>>()?;
    Ok(paths.into_iter().filter(|path| path.to_string_lossy().ends_with(ending)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_suite_is_found_among_others() {
        let targets =
            "http://a/security/ stable-security\nhttp://b/debian/ stable\nhttp://c/ other\n";
        assert_eq!(first_main(targets), Some(("http://b/debian/", "stable")));
        assert_eq!(first_main("http://a/ stable-updates\n"), None);
        assert_eq!(first_main(""), None);
    }
}
