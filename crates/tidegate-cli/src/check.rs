//! `tidegate check`: the mistakes of a file, all of them, without starting anything.

use std::path::PathBuf;

use tidegate_config::{Loader, Warning};

use crate::failure::Failure;
use crate::terminal::{print, tell};

/// Checks the file alone: neither the environment nor flags count.
pub(crate) fn check(file: PathBuf) -> Result<(), Failure> {
    let plan = Loader::default().file(file).load()?;
    // What else a plan warns of depends on the environment, in which the program will run.
    let of_file = |it: &&Warning| matches!(it, Warning::Unused { .. } | Warning::NotATier { .. });
    for warning in plan.warnings.iter().filter(of_file) {
        tell(&warning.to_string());
    }
    print("ok")
}
