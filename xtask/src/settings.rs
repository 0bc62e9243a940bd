//! The page of settings, `docs/settings.md`: every key with its default, its bounds, its sources
//! and the tests that hold it.
//!
//! What there is to say about the keys is printed by an example of `tidegate-config`; the tests are
//! found by their marks. The page is committed, so that it can be read without building anything.

mod page;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::process;
use crate::project;
use crate::tidy;
use crate::vectors::difference;

/// Where the page is kept, from the root.
const FILE: &str = "docs/settings.md";

/// Writes the page.
pub(crate) fn write() -> Result<()> {
    project::write(FILE, &generate(&[])?)
}

/// Fails if the committed page is not what the keys and the tests give.
pub(crate) fn check() -> Result<()> {
    check_with(&[])
}

/// Fails if the committed page is not what the keys and the tests give, with further arguments for
/// cargo.
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
    // A generator that prints nothing must not empty the page, or agree with an empty one.
    if keys.is_empty() {
        bail!("the example of settings printed no keys");
    }
    Ok(page::render(&keys, &tidy::setting_tests()?))
}
