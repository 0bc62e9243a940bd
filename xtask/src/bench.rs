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
}

/// Builds and runs a benchmark.
pub(crate) fn run(bench: Bench) -> Result<()> {
    let mut command =
        process::cargo(["run", "--profile", "bench", "--package", "tidegate-bench", "--"]);
    match bench {
        Bench::Core { quick } => {
            command.arg("core");
            if quick {
                command.arg("--quick");
            }
        }
    }
    process::run(command)
}
