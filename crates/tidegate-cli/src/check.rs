//! `tidegate check`: the mistakes of a file, all of them, without starting anything.

use std::path::PathBuf;

use tidegate_config::{Loader, Warning};

use crate::failure::Failure;
use crate::terminal::{print, tell};

/// Checks the file alone: neither the environment nor flags count.
pub(crate) fn check(file: PathBuf) -> Result<(), Failure> {
    let plan = Loader::default().file(file).load()?;
    // What else a plan warns of depends on the environment, in which the program will run.
    let unused = plan.warnings.iter().filter(|it| matches!(it, Warning::Unused { .. }));
    for warning in unused {
        tell(&warning.to_string());
    }
    print("ok")
}
