//! Finds or installs what builds WebAssembly: Debian's compiler with the sources of its core
//! library and its linter, and a linker.
//!
//! The toolchain of the developer has no core library for this target, and its sources are not
//! always available. Debian's packages have one version, so the core library can be compiled with the
//! program. Neither toolchain is changed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{debian, runs};
use crate::process;
use crate::sanitize;

const CARGO: &str = "/usr/bin/cargo";
const RUSTC: &str = "/usr/bin/rustc";
const CLIPPY: &str = "/usr/bin/cargo-clippy";
const PACKAGES: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "rust-web-clippy"];
const INSTALL: &str = "sudo apt-get install rustc-web cargo-web rust-web-src rust-web-clippy";

/// The oldest minor version of the compiler that knows all of our options.
const MIN_MINOR: u32 = 91;

/// Programs that build WebAssembly.
#[derive(Debug)]
pub(crate) struct WasmToolchain {
    pub(crate) cargo: &'static str,
    pub(crate) rustc: &'static str,
    pub(crate) clippy: &'static str,
    /// The line that the compiler prints as its version.
    pub(crate) version: String,
    /// Folder of the sources of the compiler, with the core library below it.
    pub(crate) source: PathBuf,
    pub(crate) linker: PathBuf,
}

/// Installs the packages unless they are installed and new enough.
///
/// The package lists are updated first: old ones may still name an older version, which installs
/// without an error.
pub(crate) fn install() -> Result<WasmToolchain> {
    if let Ok(toolchain) = find() {
        return Ok(toolchain);
    }
    let installed =
        debian::update().and_then(|()| PACKAGES.into_iter().try_for_each(debian::install));
    match (find(), installed) {
        (Ok(toolchain), _) => Ok(toolchain),
        (Err(error), Ok(())) => bail!("{error:#}; run: {INSTALL}"),
        (Err(error), Err(reason)) => bail!("{error:#} ({reason:#}); run: {INSTALL}"),
    }
}

/// Returns the installed toolchain if it is complete and new enough.
fn find() -> Result<WasmToolchain> {
    if !runs(Command::new(CARGO).arg("--version")) || !runs(Command::new(RUSTC).arg("--version")) {
        bail!("a compiler for WebAssembly is missing");
    }
    let version = read_rustc(RUSTC, "--version")?;
    let minor = parse_minor(&version).context("rustc printed no version")?;
    if minor < MIN_MINOR {
        bail!("{RUSTC} is {version}, but Rust 1.{MIN_MINOR} is needed");
    }
    let source = source()?;
    if !source.join("library/core/Cargo.toml").exists() {
        bail!("the sources of the core library of {version} are missing");
    }
    if !runs(Command::new(CLIPPY).arg("--version")) {
        bail!("clippy for {version} is missing");
    }
    let linker = linker()?;
    Ok(WasmToolchain { cargo: CARGO, rustc: RUSTC, clippy: CLIPPY, version, source, linker })
}

fn source() -> Result<PathBuf> {
    Ok(Path::new(&read_rustc(RUSTC, "--print=sysroot")?).join("lib/rustlib/src/rust"))
}

/// The linker of the developer's toolchain. Debian has it in a package of a hundred megabytes.
fn linker() -> Result<PathBuf> {
    let sysroot = PathBuf::from(read_rustc("rustc", "--print=sysroot")?);
    let own = sysroot.join("lib/rustlib").join(sanitize::host()?).join("bin/rust-lld");
    [own, "/usr/bin/rust-lld".into(), "/usr/bin/wasm-ld".into()]
        .into_iter()
        .find(|linker| linker.exists())
        .context("a linker for WebAssembly is missing; run: sudo apt-get install lld")
}

fn read_rustc(rustc: &str, argument: &str) -> Result<String> {
    let mut command = Command::new(rustc);
    command.arg(argument).current_dir(crate::project::root()).env_remove("LD_LIBRARY_PATH");
    Ok(process::read(command)?.trim().to_owned())
}

/// The minor version in a text such as `rustc 1.96.0 (ac68faa20 2026-05-25)`.
fn parse_minor(version: &str) -> Option<u32> {
    version.split(' ').nth(1)?.strip_prefix("1.")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minor_version_is_parsed() {
        assert_eq!(parse_minor("rustc 1.96.0 (ac68faa20 2026-05-25)"), Some(96));
        assert_eq!(parse_minor("rustc 1.63.0"), Some(63));
        assert_eq!(parse_minor("rustc"), None);
    }
}
