//! `cargo xtask soak`: the long forms of what the tests do in a second, and attacks on the program.

mod attacks;
mod fuzz;
mod properties;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

/// What to soak.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Soak {
    /// Run all tests in release mode, with many more cases for every property. Takes minutes. This
    /// is what `soak` alone does.
    Properties,
    /// Fuzz every parser that meets the network with libFuzzer, which is guided by coverage: heads,
    /// bodies, streams, configuration, receipts, snapshots. As many targets run at once as the
    /// machine has processors. Needs cargo-fuzz, and installs it below `target/tools` if it is
    /// missing. Ends with a table; any crash fails, and says which file reproduces it.
    Fuzz {
        /// How long each target is fuzzed.
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
        minutes: u64,
        /// Fuzz these alone; `fuzz/seeds` has a folder for each.
        #[arg(value_name = "TARGET")]
        targets: Vec<String>,
    },
    /// Attack the running program with everything at once, while callers who mean well go on. First
    /// they are measured alone, then beside the attackers. Everything is on loopback. Fails if fewer
    /// than 99.9 % of their calls succeed, if their p99 more than doubles, if the program takes more
    /// memory than it states, or if it panics.
    Attacks {
        /// How long the attack lasts.
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
        minutes: u64,
        /// Attack this program. Default: it is built, as its users get it.
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
}

/// Runs one of them.
pub(crate) fn run(soak: &Soak) -> Result<()> {
    match soak {
        Soak::Properties => properties::run(),
        Soak::Fuzz { minutes, targets } => fuzz::run(*minutes, targets),
        Soak::Attacks { minutes, program } => attacks::run(*minutes, program.clone()),
    }
}
