//! The program `tidegate`, and the only place where its parts are put together.
//!
//! Exit codes: 0 done, 1 failed, 2 usage or configuration error. Standard output is for programs
//! and gets nothing but what is documented; what people should know goes to standard error.

mod args;
mod check;
mod failure;
mod serve;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Args, Command};

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Serve(args) => serve::serve(args),
        Command::Check { file } => check::check(file),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // If nobody can read standard error, the exit code has to do.
            let _ = writeln!(io::stderr(), "{failure}");
            failure.exit_code()
        }
    }
}
