//! What the program says: lines for programs on standard output, hints for people beside them.

use std::io::{self, Write as _};

use crate::failure::Failure;

/// Tells a person something. Nobody may be there to read it.
pub(crate) fn eprint_line(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints lines for a program, or for a person who asked.
pub(crate) fn print(lines: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{lines}").and_then(|()| out.flush()).map_err(Failure::Output)
}
