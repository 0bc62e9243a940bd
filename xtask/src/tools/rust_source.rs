//! Finds or unpacks the sources of the standard library, for builds that compile it.
//!
//! Uses the toolchain's component if it is installed, otherwise Debian's package of the same
//! version, unpacked below the target folder. The toolchain is not changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::debian::{self, Sources};
use super::folder;
use crate::process;

/// Debian suites to search for a matching version.
const SUITES: [&str; 4] = ["stable-backports", "stable", "testing", "unstable"];

/// Returns the folder `library` of the sources of this compiler.
pub(crate) fn install() -> Result<PathBuf> {
    let component = PathBuf::from(run_rustc(&["--print", "sysroot"])?.trim())
        .join("lib/rustlib/src/rust/library");
    let version = run_rustc(&["--version"])?;
    let version = parse_version(&version).context("rustc printed no version")?;
    let home = folder().join("rust-src").join(version);
    for known in [component, home.join("library")] {
        if known.join("Cargo.lock").exists() {
            return Ok(known);
        }
    }
    unpack(&home, version).with_context(|| {
        format!(
            "the sources of the standard library of Rust {version} are missing; \
             run: rustup component add rust-src"
        )
    })?;
    println!("unpacked the sources of the standard library of Rust {version}");
    Ok(home.join("library"))
}

/// Unpacks Debian's package and keeps only the library.
fn unpack(home: &Path, version: &str) -> Result<()> {
    let staging = debian::create_staging_folder(home)?;
    let (mirror, _) = debian::main_suite()?;
    let sources = Sources::new(&staging, &mirror, &SUITES.map(ToOwned::to_owned))?;
    let versions = sources.versions("rust-src")?;
    let package =
        find_package(&versions, version).context("Debian has no package of this version")?;
    debian::unpack(&staging, &[&format!("rust-src={package}")], &sources.options())?;
    let library = staging.join(format!("usr/src/rustc-{version}/library"));
    fs::create_dir_all(home).context("cannot create the tools folder")?;
    fs::rename(library, home.join("library")).context("the package has an unexpected layout")?;
    fs::remove_dir_all(staging).context("cannot remove the staging folder")
}

fn run_rustc(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("rustc");
    command.args(arguments).current_dir(crate::project::root());
    process::read(command)
}

/// Extracts the version, such as `1.95.0`, from the output of `rustc --version`.
fn parse_version(output: &str) -> Option<&str> {
    output.split(' ').nth(1).map(str::trim)
}

/// Finds the version of Debian's package for a version of Rust in lines such as
/// `rust-src | 1.95.0+dfsg1-2 | http://...`.
fn find_package<'l>(lines: &'l str, version: &str) -> Option<&'l str> {
    let mut packages = lines.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim);
    packages.find(|package| {
        package.strip_prefix(version).is_some_and(|rest| rest.starts_with(['+', '-']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_of_a_version_is_found_and_no_other() {
        let lines = "  rust-src | 1.95.10+dfsg1-1 | http://a sid/main\n\
                     \u{20} rust-src | 1.95.1+dfsg1-2~bpo13+1 | http://a trixie-backports/main\n";
        assert_eq!(find_package(lines, "1.95.1"), Some("1.95.1+dfsg1-2~bpo13+1"));
        assert_eq!(find_package(lines, "1.95.0"), None);
        assert_eq!(find_package("", "1.95.0"), None);
    }

    #[test]
    fn the_version_of_rustc_is_parsed() {
        assert_eq!(parse_version("rustc 1.95.0 (59807616e 2026-04-14)\n"), Some("1.95.0"));
        assert_eq!(parse_version("rustc 1.95.0\n"), Some("1.95.0"));
        assert_eq!(parse_version(""), None);
    }
}
