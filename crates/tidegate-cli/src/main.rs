//! The `tidegate` program, which combines all crates.
//!
//! Exit codes: 0 success, 1 failure, 2 usage or configuration error. Standard output contains only
//! documented lines for programs; messages for people go to standard error.

mod activation;
mod args;
mod check;
mod completions;
mod config;
mod db;
mod demo;
mod failure;
mod http_client;
mod install_files;
mod key;
mod location;
mod log_files;
mod notify;
mod progress;
mod serve;
mod simulate;
mod status;
mod suggest;
mod terminal;
mod version;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Args, Command};

/// Allocation is a significant part of the cost of a small request.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Demo(args) => demo::demo(&args),
        Command::Serve(args) => serve::serve(args),
        Command::Check { file, strict, output } => check::check(file, strict, output),
        Command::Simulate(args) => simulate::simulate(args),
        Command::Suggest(args) => suggest::suggest(&args),
        Command::Config { location, action } => config::config(location, action),
        Command::InstallFiles { folder } => install_files::install_files(&folder),
        Command::Key { output } => key::key(output),
        Command::Status(args) => status::status(args),
        Command::Completions { shell } => completions::completions(shell),
        Command::Version { output } => version::version(output),
        Command::Db { location, action } => db::db(location, action),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_reported() {
                // If standard error is closed, the exit code must suffice.
                let _ = writeln!(io::stderr(), "{failure}");
            }
            failure.exit_code()
        }
    }
}

/// Runs a future to completion on a temporary runtime.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, failure::Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(failure::Failure::Runtime)?.block_on(work))
}
