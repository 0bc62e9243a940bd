//! `tidegate check`: the mistakes of a file, all of them, without starting anything.

use std::io::{self, Write as _};
use std::path::PathBuf;

use tidegate_config::Loader;

use crate::failure::Failure;

/// Checks the file alone: neither the environment nor flags count.
pub(crate) fn check(file: PathBuf) -> Result<(), Failure> {
    Loader::default().file(file).load()?;
    writeln!(io::stdout(), "ok").map_err(Failure::Output)
}
