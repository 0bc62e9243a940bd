//! `cargo xtask bench`: builds the benchmarks with the `bench` profile and runs them.

mod footprint;
mod redis_cell;

use std::path::{PathBuf, absolute};

use anyhow::Result;
use clap::Subcommand;

use crate::{process, project, tools, worker};

/// The benchmarks.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Bench {
    /// In-process decisions with and without keys, single and in batches, new keys, memory and
    /// sweeps, compared with governor, ratelimit, leaky-bucket and minimal baselines. Plots
    /// decision time against the number of keys in `bench/growth.svg` of the target folder.
    Core {
        /// Run fewer and shorter measurements: under a minute.
        #[arg(long)]
        quick: bool,
        /// Measure only this axis; repeatable: unkeyed, keyed, batch, first-touch, pauses, memory,
        /// growth or sweep.
        #[arg(long, value_name = "AXIS")]
        only: Vec<String>,
    },
    /// Waiting: acquire and release, many waiters on one key and their memory, compared with
    /// tokio's Semaphore, leaky-bucket and governor.
    Pacing {
        /// Run fewer measurements with fewer waiters: under a minute.
        #[arg(long)]
        quick: bool,
    },
    /// Decisions through Redis: this store, a plain GCRA script by EVALSHA, redis-cell and `INCR`;
    /// and the latency when the server is killed.
    Redis {
        /// Run fewer and shorter measurements: about 20 seconds.
        #[arg(long)]
        quick: bool,
    },
    /// Decisions on Durable Objects, beside those of the program and of Redis; a shard during a
    /// sweep; and the limiters of the npm package, beside others from npm.
    Durable {
        /// Run fewer and shorter measurements: about a minute.
        #[arg(long)]
        quick: bool,
    },
    /// Admission in process; and an axum app alone, behind this layer, and behind tower-governor.
    Inbound {
        /// Run fewer measurements: under a minute.
        #[arg(long)]
        quick: bool,
    },
    /// Calls to a provider on loopback: direct, through nginx, and through the gateway.
    Gateway {
        /// Run fewer rounds: about 20 seconds.
        #[arg(long)]
        quick: bool,
    },
    /// Replays of an access log of two million lines by `tidegate simulate` and `suggest`, beside
    /// `wc -l` and a count per client in awk.
    Replay {
        /// Run fewer rounds: about 20 seconds.
        #[arg(long)]
        quick: bool,
    },
    /// Forty agents on a limited account in real time: with the retries of their SDK, through the
    /// LiteLLM proxy, through Portkey's gateway, and through this one. Installs the peers below the
    /// target folder. Takes about half an hour.
    Outcome {
        /// Make one short run of each: about five minutes.
        #[arg(long)]
        quick: bool,
    },
    /// Number of crates and build time that the library adds to a program, compared with governor.
    /// Two empty programs are built alternately from scratch. Takes some minutes.
    Footprint {
        /// Run one round.
        #[arg(long)]
        quick: bool,
    },
    /// Instructions of a gateway call and of `POST /v1/take` in the built program, counted by
    /// callgrind, so that the load of the machine does not matter. Needs valgrind.
    Instructions {
        /// Measure this program. Default: a release build.
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
        /// Measure this program too, and fail if the first one needs over 3 % more.
        #[arg(long, value_name = "FILE")]
        before: Option<PathBuf>,
    },
    /// Calls to a simulated LLM provider in virtual time: this client, a retry loop, and a
    /// hand-written token bucket; and the overhead of a call through the client.
    Outbound {
        /// Run fewer measurements: under a minute.
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
        Bench::Durable { quick } => ("durable", *quick),
        Bench::Inbound { quick } => ("inbound", *quick),
        Bench::Outbound { quick } => ("outbound", *quick),
        Bench::Gateway { quick } => ("gateway", *quick),
        Bench::Replay { quick } => ("replay", *quick),
        Bench::Outcome { quick } => ("outcome", *quick),
        Bench::Instructions { .. } => ("instructions", false),
        // Measured by this task, because the benchmark program depends on both crates.
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
    let runs_program = matches!(
        bench,
        Bench::Gateway { .. }
            | Bench::Durable { .. }
            | Bench::Replay { .. }
            | Bench::Outcome { .. }
    );
    if runs_program {
        command.arg("--tidegate").arg(tidegate()?);
    }
    if let Bench::Durable { .. } = bench {
        tools::npm()?;
        worker::bundle()?;
    }
    if let Bench::Outcome { .. } = bench {
        let peers = tools::peers()?;
        command.arg("--python").arg(peers.python).arg("--portkey").arg(peers.portkey);
    }
    if let Bench::Gateway { .. } = bench {
        match tools::nginx() {
            Ok(nginx) => command.arg("--nginx").arg(nginx),
            Err(error) => command.arg("--without-nginx").arg(format!("{error:#}")),
        };
    }
    process::run(command)
}

/// Builds `tidegate` in release mode and returns its path.
pub(crate) fn tidegate() -> Result<PathBuf> {
    process::run(process::cargo(["build", "--release", "--package", "tidegate-cli"]))?;
    Ok(project::target_folder("release")?.join("tidegate"))
}
