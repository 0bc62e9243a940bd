//! Benchmarks, by axis, with the peers in the same run.
//!
//! Wall-clock figures depend on the machine and on its neighbours; ratios between contenders that
//! were measured in turns depend on them much less. So every table has both, and documents quote
//! the ratios. Run it as `cargo xtask bench core`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark reports to a terminal")]

mod contender;
mod decisions;
mod keys;
mod machine;
mod measure;
mod report;
mod stopwatch;

use clap::{Parser, Subcommand};

/// Measures Tidegate beside its peers and prints Markdown tables.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// In-process decisions: this store, governor as it comes, and a bare floor.
    Core {
        /// Fewer runs: under a minute, for a first look.
        #[arg(long)]
        quick: bool,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().bench {
        Bench::Core { quick } => {
            decisions::run(if quick { measure::QUICK } else { measure::THOROUGH })
        }
    }
}
