//! Running the benchmarks, optimised as far as the compiler goes.

mod footprint;
mod redis_cell;

use std::path::{PathBuf, absolute};

use anyhow::Result;
use clap::Subcommand;

use crate::{process, project, tools};

/// What to measure.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Bench {
    /// In-process decisions with and without keys, alone and in batches, new keys, memory and
    /// sweeps: beside governor, ratelimit, leaky-bucket and bare floors. Draws how decisions take
    /// longer with more keys in `bench/growth.svg` of the target folder.
    Core {
        /// Fewer and shorter runs: under a minute, for a first look.
        #[arg(long)]
        quick: bool,
        /// Measure this axis alone; may be given several times: unkeyed, keyed, batch,
        /// first-touch, pauses, memory, growth or sweep.
        #[arg(long, value_name = "AXIS")]
        only: Vec<String>,
    },
    /// Waiting: acquire and release, crowds on one key and their memory, beside tokio's Semaphore,
    /// leaky-bucket and governor.
    Pacing {
        /// Fewer runs and waiters: under a minute, for a first look.
        #[arg(long)]
        quick: bool,
    },
    /// Decisions through Redis: this store, a plain GCRA script by EVALSHA, redis-cell and `INCR`;
    /// and the latency around a killed server.
    Redis {
        /// Fewer and shorter runs: about 20 seconds, for a first look.
        #[arg(long)]
        quick: bool,
    },
    /// Admission in process; and an axum app bare, behind this layer and behind tower-governor.
    Inbound {
        /// Fewer runs: under a minute, for a first look.
        #[arg(long)]
        quick: bool,
    },
    /// Calls to a provider on loopback: direct, through nginx, and through the gateway.
    Gateway {
        /// Fewer turns: about 20 seconds, for a first look.
        #[arg(long)]
        quick: bool,
    },
    /// Crates and seconds that a program takes on with the library, beside governor: two empty
    /// programs are built from nothing in turns. Some minutes.
    Footprint {
        /// One turn, for a first look.
        #[arg(long)]
        quick: bool,
    },
    /// Instructions of a gateway call and of `POST /v1/take` in the built program, counted by
    /// callgrind: the same on a busy machine. Needs valgrind.
    Instructions {
        /// Count those of this program. Default: it is built, as its users get it.
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
        /// Count those of this one too, and fail if the first needs over 3 % more.
        #[arg(long, value_name = "FILE")]
        before: Option<PathBuf>,
    },
    /// Calls to a simulated LLM provider: this stack, a retry loop and a token bucket by hand, in
    /// virtual time; and what a call through the stack costs.
    Outbound {
        /// Fewer runs: under a minute, for a first look.
        #[arg(long)]
        quick: bool,
    },
}

/// Builds and runs a benchmark.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    let mut command =
        process::cargo(["run", "--profile", "bench", "--package", "tidegate-bench", "--"]);
    let (name, quick) = match bench {
        Bench::Core { quick, .. } => ("core", *quick),
        Bench::Pacing { quick } => ("pacing", *quick),
        Bench::Redis { quick } => ("redis", *quick),
        Bench::Inbound { quick } => ("inbound", *quick),
        Bench::Outbound { quick } => ("outbound", *quick),
        Bench::Gateway { quick } => ("gateway", *quick),
        Bench::Instructions { .. } => ("instructions", false),
        // Measured by this task: the program of benchmarks depends on both.
        Bench::Footprint { quick } => return footprint::run(*quick),
    };
    command.arg(name);
    if quick {
        command.arg("--quick");
    }
    if let Bench::Core { only, .. } = bench {
        command.arg("--plot").arg(project::target_folder("bench")?.join("growth.svg"));
        command.args(only.iter().flat_map(|axis| ["--only", axis]));
    }
    if let Bench::Redis { .. } = bench {
        match redis_cell::build() {
            Ok(module) => command.arg("--redis-cell").arg(module),
            Err(error) => command.arg("--without-redis-cell").arg(format!("{error:#}")),
        };
    }
    if let Bench::Instructions { program, before } = bench {
        let program = program.as_ref().map_or_else(tidegate, |path| Ok(absolute(path)?))?;
        command.arg("--program").arg(program);
        if let Some(before) = before {
            command.arg("--before").arg(absolute(before)?);
        }
    }
    if let Bench::Gateway { .. } = bench {
        command.arg("--tidegate").arg(tidegate()?);
        match tools::nginx() {
            Ok(nginx) => command.arg("--nginx").arg(nginx),
            Err(error) => command.arg("--without-nginx").arg(format!("{error:#}")),
        };
    }
    process::run(command)
}

/// Builds the program as its users get it; returns where it is.
pub(crate) fn tidegate() -> Result<PathBuf> {
    process::run(process::cargo(["build", "--release", "--package", "tidegate-cli"]))?;
    Ok(project::target_folder("release")?.join("tidegate"))
}
