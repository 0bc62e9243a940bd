//! Running the benchmarks, optimised as far as the compiler goes.

use anyhow::Result;
use clap::Subcommand;

use crate::process;

/// What to measure.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum Bench {
    /// In-process decisions: this store, governor as it comes, and a bare floor.
    Core {
        /// Fewer runs: under a minute, for a first look.
        #[arg(long)]
        quick: bool,
    },
    /// Waiting: acquire and release, crowds on one key and their memory, beside tokio's Semaphore,
    /// leaky-bucket and governor.
    Pacing {
        /// Fewer runs and waiters: under a minute, for a first look.
        #[arg(long)]
        quick: bool,
    },
}

/// Builds and runs a benchmark.
pub(crate) fn run(bench: Bench) -> Result<()> {
    let mut command =
        process::cargo(["run", "--profile", "bench", "--package", "tidegate-bench", "--"]);
    let (name, quick) = match bench {
        Bench::Core { quick } => ("core", quick),
        Bench::Pacing { quick } => ("pacing", quick),
    };
    command.arg(name);
    if quick {
        command.arg("--quick");
    }
    process::run(command)
}
