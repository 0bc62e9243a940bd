//! Builds redis-cell, a peer of the shared store, from the crate registry.
//!
//! It is a Redis module and not a dependency of ours, so a separate package below the target folder
//! depends on it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::project;

/// Manifest of that package. `[workspace]` keeps it out of our workspace.
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

/// Builds the module unless it exists, and returns its path.
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
    // A module must include the standard library, which the crate's own `dylib` does not.
    let mut command = process::cargo(["rustc", "--quiet", "--release", "--package", "redis-cell"]);
    command.args(["--crate-type", "cdylib", "--target-dir"]).arg(folder.join("target"));
    let output = command.current_dir(&folder).output().context("cannot start cargo")?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let error =
            stderr.lines().find(|line| line.starts_with("error")).unwrap_or("unknown error");
        bail!("redis-cell cannot be built from the crate registry ({error})");
    }
    Ok(module)
}
