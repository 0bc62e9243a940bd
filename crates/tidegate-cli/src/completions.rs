//! `tidegate completions`: prints a completion script for a shell, from the definition of the
//! command line.

use clap::CommandFactory as _;
use clap_complete::{Shell, generate};

use crate::args::Args;
use crate::failure::Failure;
use crate::terminal::print;

/// Prints the script.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(shell, &mut Args::command(), "tidegate", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}
