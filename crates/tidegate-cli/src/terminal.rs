//! Output: lines for programs on standard output, messages for people on standard error.

use std::io::{self, Write as _};

use crate::failure::Failure;

/// Prints a message to standard error, ignoring errors.
pub(crate) fn eprint_line(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints lines to standard output.
pub(crate) fn print(lines: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{lines}").and_then(|()| out.flush()).map_err(Failure::Output)
}
