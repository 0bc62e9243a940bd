//! redis-cell, a peer of the shared store, built from the crate registry.
//!
//! It is a module for Redis, so it is not a dependency of ours: a package of its own below the
//! folder of builds depends on it, and stays there.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::project;

/// The package that depends on it. The table at its end keeps it out of our workspace.
const MANIFEST: &str = r#"[package]
name = "redis-cell-module"
version = "0.0.0"
edition = "2024"

[lib]
path = "empty.rs"

[dependencies]
redis-cell = "=0.2.2"

[workspace]
"#;

/// Builds the module unless that has been done; returns where it is.
pub(super) fn build() -> Result<PathBuf> {
    let folder = project::root().join("target/tools/redis-cell");
    let module = folder.join("target/release/libredis_cell.so");
    if module.is_file() {
        return Ok(module);
    }
    fs::create_dir_all(&folder).context("cannot create a folder for tools")?;
    fs::write(folder.join("Cargo.toml"), MANIFEST)?;
    fs::write(folder.join("empty.rs"), "")?;
    println!("building redis-cell");
    // A module must bring the standard library along; as the crate has it, it would not.
    let mut command = process::cargo(["rustc", "--quiet", "--release", "--package", "redis-cell"]);
    command.args(["--crate-type", "cdylib", "--target-dir"]).arg(folder.join("target"));
    let output = command.current_dir(&folder).output().context("cannot start cargo")?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let error = stderr.lines().find(|line| line.starts_with("error")).unwrap_or("no reason");
        bail!("it cannot be built from the crate registry ({error})");
    }
    Ok(module)
}
