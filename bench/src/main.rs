//! Benchmarks of Tidegate and its peers, by axis, in one run.
//!
//! Wall-clock times depend on the machine and its load; ratios between contenders measured
//! alternately depend on them much less. So every table has both, and documents quote the ratios.
//! Run it as
//! `cargo xtask bench core`, `cargo xtask bench pacing`,
//! `cargo xtask bench redis`, `cargo xtask bench durable`, `cargo xtask bench inbound`, `cargo xtask bench outbound`,
//! `cargo xtask bench gateway`, `cargo xtask bench replay`, `cargo xtask bench outcome` and
//! `cargo xtask bench instructions`. `cargo xtask soak attacks`
//! uses this program too.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "benchmarks print to the terminal")]

mod attacks;
mod child;
mod closed_loop;
mod contender;
mod core;
mod durable;
mod gateway;
mod http_client;
mod inbound;
mod instructions;
mod keys;
mod machine;
mod measure;
mod outbound;
mod outcome;
mod pacing;
mod progress;
mod remote;
mod replay;
mod report;
mod server_process;
mod stopwatch;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use core::{Axis, Subject};
use inbound::app::App;

/// Measures Tidegate and its peers, and prints Markdown tables.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// In-process decisions with and without keys, single and in batches, new keys, memory and
    /// sweeps, compared with governor, ratelimit, leaky-bucket and minimal baselines.
    Core {
        /// Run fewer and shorter measurements: under a minute.
        #[arg(long)]
        quick: bool,
        /// Measure only this axis; repeatable.
        #[arg(long, value_name = "AXIS")]
        only: Vec<Axis>,
        /// File for the SVG plot of decision time by number of keys.
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
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
        /// The redis-cell module. `cargo xtask bench redis` builds it.
        #[arg(long, value_name = "FILE")]
        redis_cell: Option<PathBuf>,
        /// Why it is missing.
        #[arg(long, hide = true, default_value = "no module was given")]
        without_redis_cell: String,
    },
    /// Decisions on Durable Objects, beside those of the program and of Redis; a shard during a
    /// sweep; and the limiters of the npm package, beside others from npm.
    Durable {
        /// Run fewer and shorter measurements: about a minute.
        #[arg(long)]
        quick: bool,
        /// The `tidegate` program. `cargo xtask bench durable` builds it.
        #[arg(long, value_name = "FILE")]
        tidegate: PathBuf,
    },
    /// Admission in process; and an axum app alone, behind this layer, and behind tower-governor.
    Inbound {
        /// Run fewer measurements: under a minute.
        #[arg(long)]
        quick: bool,
    },
    /// Calls to a simulated LLM provider in virtual time: this client, a retry loop, and a
    /// hand-written token bucket; and the overhead of a call through the client.
    Outbound {
        /// Run fewer measurements: under a minute.
        #[arg(long)]
        quick: bool,
    },
    /// Calls to a provider on loopback: direct, through nginx, and through the gateway.
    Gateway {
        /// Run fewer rounds: about 20 seconds.
        #[arg(long)]
        quick: bool,
        /// The `tidegate` program. `cargo xtask bench gateway` builds it.
        #[arg(long, value_name = "FILE")]
        tidegate: PathBuf,
        /// The nginx program. `cargo xtask bench gateway` installs it.
        #[arg(long, value_name = "FILE")]
        nginx: Option<PathBuf>,
        /// Why it is missing.
        #[arg(long, hide = true, default_value = "no program was given")]
        without_nginx: String,
    },
    /// Replays of an access log by the program, beside `wc -l` and awk.
    Replay {
        /// Run fewer rounds: about 20 seconds.
        #[arg(long)]
        quick: bool,
        /// The `tidegate` program. `cargo xtask bench replay` builds it.
        #[arg(long, value_name = "FILE")]
        tidegate: PathBuf,
    },
    /// Forty agents on a limited account in real time: with the retries of their SDK, through the
    /// LiteLLM proxy, through Portkey's gateway, and through this one.
    Outcome {
        /// Make one short run of each: about five minutes.
        #[arg(long)]
        quick: bool,
        /// The `tidegate` program. `cargo xtask bench outcome` builds it.
        #[arg(long, value_name = "FILE")]
        tidegate: PathBuf,
        /// Python with the client and LiteLLM. `cargo xtask bench outcome` installs both.
        #[arg(long, value_name = "FILE")]
        python: PathBuf,
        /// Portkey's gateway. `cargo xtask bench outcome` installs it.
        #[arg(long, value_name = "FILE")]
        portkey: PathBuf,
    },
    /// Instructions of a gateway call and of `POST /v1/take` in the built program, by callgrind.
    Instructions {
        /// The `tidegate` program. `cargo xtask bench instructions` builds it.
        #[arg(long, value_name = "FILE")]
        program: PathBuf,
        /// A program to compare it with.
        #[arg(long, value_name = "FILE")]
        before: Option<PathBuf>,
    },
    /// Mixed attacks on the program, and what callers who mean well notice of them.
    Attacks {
        /// How long the attack lasts.
        #[arg(long, value_name = "N", default_value_t = 10)]
        minutes: u64,
        /// The program `tidegate`, built. The task `soak attacks` builds it.
        #[arg(long, value_name = "FILE")]
        tidegate: PathBuf,
    },
    /// The memory of one limiter in a process of its own; `core` starts these.
    #[command(hide = true)]
    CoreMemory {
        /// Whose.
        subject: Subject,
        /// How many keys it sees.
        keys: usize,
    },
    /// A provider in a process of its own; `gateway` starts it.
    #[command(hide = true)]
    GatewayUpstream,
    /// One app in a process of its own; `inbound` starts these.
    #[command(hide = true)]
    InboundApp {
        /// Which one.
        app: App,
    },
    /// Calls to one app in a process of its own; `inbound` starts these.
    #[command(hide = true)]
    InboundCalls {
        /// Which one.
        app: App,
        /// How many.
        calls: u64,
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
        Bench::Core { quick, only, plot } => {
            let settings = if quick { core::QUICK } else { core::THOROUGH };
            core::run(settings, &only, plot.as_deref())
        }
        Bench::CoreMemory { subject, keys } => core::memory_alone(subject, keys),
        Bench::Pacing { quick } => pacing::run(effort(quick), pacing::waiters(quick)),
        Bench::Redis { quick, redis_cell, without_redis_cell } => {
            let pace = if quick { remote::QUICK } else { remote::THOROUGH };
            remote::run(pace, redis_cell.ok_or(without_redis_cell))
        }
        Bench::Durable { quick, tidegate } => {
            durable::run(if quick { durable::QUICK } else { durable::THOROUGH }, &tidegate)
        }
        Bench::Inbound { quick } => inbound::run(effort(quick)),
        Bench::Outbound { quick } => outbound::run(effort(quick)),
        Bench::Gateway { quick, tidegate, nginx, without_nginx } => {
            let rounds = if quick { gateway::QUICK } else { gateway::THOROUGH };
            gateway::run(rounds, &tidegate, nginx.ok_or(without_nginx))
        }
        Bench::Replay { quick, tidegate } => {
            replay::run(if quick { replay::QUICK } else { replay::THOROUGH }, &tidegate)
        }
        Bench::Outcome { quick, tidegate, python, portkey } => {
            let effort = if quick { outcome::QUICK } else { outcome::THOROUGH };
            outcome::run(effort, &outcome::Programs { python, tidegate, portkey })
        }
        Bench::Instructions { program, before } => instructions::run(&program, before.as_deref()),
        Bench::Attacks { minutes, tidegate } => {
            attacks::run(&tidegate, Duration::from_secs(minutes * 60))
        }
        Bench::GatewayUpstream => gateway::serve_alone(),
        Bench::InboundApp { app } => inbound::serve_alone(app),
        Bench::InboundCalls { app, calls } => inbound::calls_alone(app, calls),
        Bench::Crowd { role, waiters } => pacing::crowd_alone(role, waiters),
    }
}
