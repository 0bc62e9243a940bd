//! `tidegate demo`: what the gateway changes for agents that share one limited account.
//!
//! Agents call a simulated provider, first directly and then through the gateway, and one table
//! compares what was measured. Nothing leaves this machine, and no key or configuration file is
//! read. In virtual time, everything is connected in memory; else over loopback.

mod agents;
mod gateway;
mod live;
mod network;
mod report;
mod scenario;
mod sdk;

use std::io;
use std::sync::Arc;

use tidegate_server::StartError;
use tidegate_sim::BuildError;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::demo::DemoArgs;
use crate::failure::Failure;
use crate::terminal::{eprint_line, print, print_json};

use agents::Tally;
use gateway::Gateway;
use live::Live;
use network::Endpoint;
use report::{Report, Run};
use scenario::Scenario;

/// Why the demo has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error("the simulated provider cannot be built: {0}")]
    Provider(#[from] BuildError),
    #[error("cannot listen on a free port of 127.0.0.1: {0}")]
    Listen(io::Error),
    #[error("the gateway does not start: {0}")]
    Gateway(#[from] StartError),
    #[error("an agent stopped: {0}")]
    Agent(#[from] tokio::task::JoinError),
    #[error("interrupted before the end; there is no result")]
    Interrupted,
}

/// Whether time is real.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    Real,
    Virtual,
}

/// Which way the agents take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Direct,
    Gateway,
}

/// Runs the demo and prints its table.
pub(crate) fn demo(args: &DemoArgs) -> Result<(), Failure> {
    let time = if args.fast { Time::Virtual } else { Time::Real };
    let scenario = Scenario::new(args.seed);
    let runtime = runtime(time).map_err(Failure::Runtime)?;
    if !args.output.json {
        eprint_line(&report::introduction(scenario, time));
    }
    let runs = runtime.block_on(until_interrupted(both(scenario, time)));
    // Closes what is still open, as after an interrupt.
    runtime.shutdown_background();
    let report = Report::new(scenario, time, runs?);
    if args.output.json {
        return print_json(&report);
    }
    print(&report.table())?;
    eprint_line(report::HINT);
    Ok(())
}

fn runtime(time: Time) -> io::Result<Runtime> {
    match time {
        Time::Real => Builder::new_multi_thread().enable_all().build(),
        Time::Virtual => Builder::new_current_thread().enable_all().start_paused(true).build(),
    }
}

/// Ends with an error on SIGINT or SIGTERM.
async fn until_interrupted<T>(
    work: impl Future<Output = Result<T, DemoError>>,
) -> Result<T, Failure> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Runtime)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Runtime)?;
    tokio::select! {
        done = work => Ok(done?),
        _ = interrupt.recv() => Err(DemoError::Interrupted.into()),
        _ = terminate.recv() => Err(DemoError::Interrupted.into()),
    }
}

async fn both(scenario: Scenario, time: Time) -> Result<[Run; 2], DemoError> {
    let live = Live::start(time);
    let direct = run(scenario, time, Route::Direct, &live).await?;
    let gateway = run(scenario, time, Route::Gateway, &live).await?;
    live.finish();
    Ok([direct, gateway])
}

/// Runs the agents against a new provider.
async fn run(scenario: Scenario, time: Time, route: Route, live: &Live) -> Result<Run, DemoError> {
    let simulator = scenario.provider()?;
    let provider = match time {
        Time::Real => Endpoint::serve(&simulator).await.map_err(DemoError::Listen)?,
        Time::Virtual => Endpoint::Simulator(simulator.clone()),
    };
    let gateway = match route {
        Route::Direct => None,
        Route::Gateway => Some(Gateway::open(&provider).await?),
    };
    let (endpoint, path) = match &gateway {
        None => (provider, "/v1/chat/completions"),
        Some(gateway) => (gateway.endpoint(), "/openai/v1/chat/completions"),
    };
    let tally = Arc::new(Tally::default());
    let took = tokio::select! {
        took = agents::run(scenario, &endpoint, path, &tally) => took?,
        never = live.watch(route, &tally, &simulator) => match never {},
    };
    live.end(route, &tally, &simulator);
    if let Some(gateway) = gateway {
        gateway.close().await;
    }
    Ok(Run::measured(scenario, took, &tally, &simulator.ledger()))
}
