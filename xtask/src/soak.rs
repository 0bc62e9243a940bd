//! `cargo xtask soak`: long versions of the property and fuzz tests, and attacks on the program.

mod attacks;
mod fuzz;
mod properties;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

/// The kinds of soak test.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Soak {
    /// Run all tests in release mode, with many more cases per property. Takes minutes. This is the
    /// default.
    Properties,
    /// Fuzz every parser of untrusted input with libFuzzer, guided by coverage: heads, bodies,
    /// streams, configuration, receipts, snapshots. One target runs per processor. Installs
    /// cargo-fuzz below `target/tools` if it is missing. Ends with a table; a crash fails the run
    /// and names the file that reproduces it.
    Fuzz {
        /// Duration per target.
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
        minutes: u64,
        /// Fuzz only these targets; `fuzz/seeds` has a folder for each.
        #[arg(value_name = "TARGET")]
        targets: Vec<String>,
    },
    /// Run all attacks on the program at once, together with legitimate callers, on loopback. The
    /// callers are measured alone first, then during the attack. Fails if fewer than 99.9 % of
    /// their calls succeed, if their p99 more than doubles, if the program exceeds its stated
    /// memory, or if it panics.
    Attacks {
        /// Duration of the attack.
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
        minutes: u64,
        /// Attack this program. Default: a release build.
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
}

/// Runs a soak test.
pub(crate) fn run(soak: &Soak) -> Result<()> {
    match soak {
        Soak::Properties => properties::run(),
        Soak::Fuzz { minutes, targets } => fuzz::run(*minutes, targets),
        Soak::Attacks { minutes, program } => attacks::run(*minutes, program.clone()),
    }
}
