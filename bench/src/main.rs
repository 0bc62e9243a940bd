//! Benchmarks, by axis, with the peers in the same run.
//!
//! Wall-clock figures depend on the machine and on its neighbours; ratios between contenders that
//! were measured in turns depend on them much less. So every table has both, and documents quote
//! the ratios. Run it as `cargo xtask bench core` and
//! `cargo xtask bench pacing`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark reports to a terminal")]

mod contender;
mod decisions;
mod keys;
mod machine;
mod measure;
mod pacing;
mod progress;
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
    /// Waiting: acquire and release, crowds on one key and their memory, beside tokio's Semaphore,
    /// leaky-bucket and governor.
    Pacing {
        /// Fewer runs and waiters: under a minute, for a first look.
        #[arg(long)]
        quick: bool,
    },
    /// One crowd in a process of its own; `pacing` starts these.
    #[command(hide = true)]
    Crowd {
        /// Who is measured, by its place in the list.
        role: usize,
        /// How many wait.
        waiters: usize,
    },
}

fn main() -> anyhow::Result<()> {
    let effort = |quick| if quick { measure::QUICK } else { measure::THOROUGH };
    match Arguments::parse().bench {
        Bench::Core { quick } => decisions::run(effort(quick)),
        Bench::Pacing { quick } => pacing::run(effort(quick), pacing::waiters(quick)),
        Bench::Crowd { role, waiters } => pacing::crowd_alone(role, waiters),
    }
}
