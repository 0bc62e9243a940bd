//! The program `tidegate`, and the only place where its parts are put together.
//!
//! Exit codes: 0 done, 1 failed, 2 usage or configuration error. Standard output is for programs
//! and gets nothing but what is documented; what people should know goes to standard error.

mod args;
mod check;
mod config;
mod db;
mod failure;
mod key;
mod location;
mod serve;
mod terminal;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Args, Command};

/// Taking memory and giving it back is a good part of what a small request costs.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Serve(args) => serve::serve(args),
        Command::Check { file, strict } => check::check(file, strict),
        Command::Config { location, action } => config::config(location, action),
        Command::Key => key::key(),
        Command::Db { location, action } => db::db(location, action),
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

/// Waits for one thing that a command does.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, failure::Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(failure::Failure::Runtime)?.block_on(work))
}
