//! Runs rustdoc with JSON output and reads the result.
//!
//! JSON output is unstable: stable rustdoc writes it only with `RUSTC_BOOTSTRAP=1`. Cargo must not
//! see that variable, because build scripts of common crates run again when it changes, and then
//! nearly everything is rebuilt. So cargo runs this program in place of rustdoc, and this program
//! runs rustdoc with the variable set.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use rustdoc_types::{Crate, FORMAT_VERSION};
use serde::Deserialize;

use super::{Documents, PUBLISHED, underscored};
use crate::process;
use crate::project;

/// Environment variable with the path of the real rustdoc.
const REAL_RUSTDOC: &str = "XTASK_RUSTDOC";
/// Environment variable with the rustdoc that cargo runs.
const RUSTDOC: &str = "RUSTDOC";
const FLAGS: &str = "-Z unstable-options --output-format json --document-hidden-items";

/// Runs the real rustdoc if cargo started this program in place of it; returns `None` otherwise.
pub(crate) fn run_as_rustdoc() -> Option<ExitCode> {
    let mut command = Command::new(env::var_os(REAL_RUSTDOC)?);
    command.args(env::args_os().skip(1)).env("RUSTC_BOOTSTRAP", "1");
    let succeeded = command.status().is_ok_and(|status| status.success());
    Some(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Generates and reads the JSON of every published crate.
pub(super) fn documents(extra: &[&str]) -> Result<Documents> {
    let mut command = process::cargo(["doc", "--quiet", "--lib", "--no-deps", "--all-features"]);
    command.args(extra).args(PUBLISHED.iter().flat_map(|name| ["--package", name]));
    command.env("RUSTDOCFLAGS", FLAGS);
    command.env(REAL_RUSTDOC, env::var_os(RUSTDOC).unwrap_or_else(|| "rustdoc".into()));
    command.env(RUSTDOC, env::current_exe().context("cannot find the path of this program")?);
    process::run(command)?;
    let document = |name: &&str| Ok((underscored(name), read(&path(name)?)?));
    PUBLISHED.iter().map(document).collect()
}

/// The path of the JSON of a crate.
pub(super) fn path(name: &str) -> Result<PathBuf> {
    Ok(project::target_folder("doc")?.join(format!("{}.json", underscored(name))))
}

fn read(path: &Path) -> Result<Crate> {
    let display = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {display}"))?;
    parse(&text).with_context(|| format!("cannot use {display}"))
}

/// Checks the format version before parsing the rest, because another version may differ anywhere.
fn parse(text: &str) -> Result<Crate> {
    #[derive(Deserialize)]
    struct Format {
        format_version: u32,
    }
    let Format { format_version } =
        serde_json::from_str(text).context("it has no format version")?;
    if format_version != FORMAT_VERSION {
        bail!(
            "it has format {format_version} of rustdoc's JSON, but this task reads \
             {FORMAT_VERSION}. Set `rustdoc-types` in the root Cargo.toml to 0.{format_version}, \
             `public-api` to a version that depends on that, and run `cargo xtask api`; or use a \
             toolchain whose rustdoc writes format {FORMAT_VERSION}"
        );
    }
    serde_json::from_str(text).context("it does not match its format version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_format_is_an_error_that_says_what_to_do() {
        let error = parse(r#"{"format_version": 9, "index": 1}"#).unwrap_err().to_string();
        assert!(error.starts_with("it has format 9 "), "{error}");
        assert!(error.contains("`rustdoc-types` in the root Cargo.toml to 0.9"), "{error}");
        assert!(format!("{:#}", parse("{}").unwrap_err()).contains("format_version"));
    }
}
