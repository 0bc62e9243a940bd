//! `cargo xtask vocabulary`: writes the vocabulary of `tidegate_providers::tokens`.
//!
//! The file is committed, since building it from its source takes minutes. A test of the crate
//! compares it with the source.

use anyhow::Result;

use crate::process;
use crate::project;

/// Path of the file relative to the root.
const FILE: &str = "crates/tidegate-providers/vocabulary/o200k_base.gz";

/// Writes the file.
pub(crate) fn write() -> Result<()> {
    let mut command = process::cargo(["run", "--quiet", "--package", "tidegate-providers"]);
    command.args(["--features", "tokenizer", "--example", "vocabulary", "--"]);
    command.arg(project::root().join(FILE));
    process::run(command)
}
