//! `tidegate check`: the mistakes of a file, all of them, without starting anything.

use std::path::PathBuf;

use tidegate_config::Loader;

use crate::failure::Failure;
use crate::terminal::print;

/// Checks the file alone: neither the environment nor flags count.
pub(crate) fn check(file: PathBuf) -> Result<(), Failure> {
    Loader::default().file(file).load()?;
    print("ok")
}
