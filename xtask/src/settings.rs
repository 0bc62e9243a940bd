//! `cargo xtask settings`: generates `docs/settings.md`, with the default, bounds, sources and
//! tests of every configuration key.
//!
//! An example of `tidegate-config` prints the descriptions of the keys; `/// Setting:` comments
//! mark the tests. The page is committed, so that it can be read without a build.

mod page;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::process;
use crate::project;
use crate::tidy;
use crate::vectors::difference;

/// Path of the page relative to the root.
const FILE: &str = "docs/settings.md";

/// Writes the page.
pub(crate) fn write() -> Result<()> {
    project::write(FILE, &generate(&[])?)
}

/// Fails if the committed page is out of date.
pub(crate) fn check() -> Result<()> {
    check_with(&[])
}

/// Runs [`check`] with additional arguments for cargo.
pub(crate) fn check_with(extra: &[&str]) -> Result<()> {
    let committed = fs::read_to_string(path())
        .with_context(|| format!("cannot read {FILE}; `cargo xtask settings` writes it"))?;
    if let Some(difference) = difference(&committed, &generate(extra)?) {
        bail!(
            "{FILE} is out of date: {difference}\n\
             Run `cargo xtask settings` and look at `git diff {FILE}`."
        );
    }
    Ok(())
}

fn path() -> PathBuf {
    project::root().join(FILE)
}

fn generate(extra: &[&str]) -> Result<String> {
    let mut command = process::cargo(["run", "--quiet", "--package", "tidegate-config"]);
    command.args(extra).args(["--example", "settings"]);
    let printed = process::read(command)?;
    let keys: Vec<Value> =
        serde_json::from_str(&printed).context("the example of settings printed no JSON")?;
    // An empty output must not empty the page, or match an empty one.
    if keys.is_empty() {
        bail!("the example of settings printed no keys");
    }
    Ok(page::render(&keys, &tidy::setting_tests()?))
}
