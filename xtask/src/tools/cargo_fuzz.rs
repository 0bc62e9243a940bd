//! Installs cargo-fuzz, which builds libFuzzer programs, from the crate registry.

use std::env;
use std::ffi::OsString;

use anyhow::{Context as _, Result};

use super::{folder, runs};
use crate::process;

/// Installs cargo-fuzz below the tools folder if it is missing. Returns the `PATH` with which cargo
/// finds it.
pub(crate) fn install() -> Result<OsString> {
    let usual = env::var_os("PATH").unwrap_or_default();
    if runs(&mut process::cargo(["fuzz", "--version"])) {
        return Ok(usual);
    }
    let root = folder().join("cargo-fuzz");
    let all = [root.join("bin")].into_iter().chain(env::split_paths(&usual));
    let path = env::join_paths(all).context("cannot extend PATH")?;
    let mut command = process::cargo(["fuzz", "--version"]);
    if !runs(command.env("PATH", &path)) {
        println!("installing cargo-fuzz below target/tools, which takes a minute");
        let mut command = process::cargo(["install", "--locked", "cargo-fuzz", "--root"]);
        command.arg(&root);
        process::run(command)?;
    }
    Ok(path)
}
