//! The app behind a socket, in a separate process on its own core.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use indicatif::ProgressBar;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::child::{self, Program};
use crate::machine;
use crate::measure::{Effort, Figure, as_float, percentiles, summary};
use crate::stopwatch::Stopwatch;

use super::app::App;

/// Number of connections, each with sequential requests.
const CONNECTIONS: usize = 32;
const RUN: Duration = Duration::from_millis(500);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: app\r\n\r\n";

/// Results of an app.
#[derive(Debug)]
pub(crate) struct Load {
    /// Requests per second.
    pub(crate) rate: Figure,
    /// Median and 99th percentile of the latency of each run, in microseconds.
    pub(crate) p50: Figure,
    pub(crate) p99: Figure,
    /// Processor time of the server per request, in nanoseconds; NaN if unknown.
    pub(crate) processor: Figure,
}

pub(crate) fn steps(effort: Effort) -> u64 {
    (App::ALL.len() * effort.runs) as u64
}

/// Results of all apps, and whether clients and server were on different cores.
#[derive(Debug)]
pub(crate) struct Loads {
    pub(crate) apps: Vec<Load>,
    pub(crate) apart: bool,
}

/// Measures the apps alternately, in the order of [`App::ALL`]: the server on the first of these
/// cores, the clients on the second. With fewer than two cores nothing is pinned, and the table
/// says so.
pub(crate) fn measure(effort: Effort, cores: &[usize], progress: &ProgressBar) -> Result<Loads> {
    progress.set_message("load over sockets");
    let (of_apps, of_load) = match cores {
        [first, second, ..] => (Some(*first), Some(*second)),
        _ => (None, None),
    };
    let apps = machine::on_core(of_apps, || {
        App::ALL.into_iter().map(Process::start).collect::<Result<Vec<_>>>()
    })?;
    let loads = machine::on_core(of_load, || ask_in_turns(effort, &apps, progress))?;
    Ok(Loads { apps: loads, apart: of_load.is_some() })
}

fn ask_in_turns(effort: Effort, apps: &[Process], progress: &ProgressBar) -> Result<Vec<Load>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut runs: Vec<[Vec<f64>; 4]> = vec![Default::default(); apps.len()];
    for _ in 0..effort.runs {
        for (app, runs) in apps.iter().zip(&mut runs) {
            for (figure, all) in runtime.block_on(run(app))?.into_iter().zip(runs) {
                all.push(figure);
            }
            progress.inc(1);
        }
    }
    let load = |[rate, p50, p99, processor]: &[Vec<f64>; 4]| Load {
        rate: summary(rate, 0),
        p50: summary(p50, 0),
        p99: summary(p99, 0),
        processor: summary(processor, 0),
    };
    Ok(runs.iter().map(load).collect())
}

/// Serves an app until standard input is closed, on the core on which it was started.
pub(crate) fn serve_alone(app: App) -> Result<()> {
    let router = app.router()?.into_make_service_with_connect_info::<SocketAddr>();
    child::serve_alone(async |listener| Ok(axum::serve(listener, router).await?))
}

/// One run: requests per second, p50, p99, and processor time of the server per request.
async fn run(app: &Process) -> Result<[f64; 4]> {
    let before = machine::processor_time_of(app.program.id());
    let stopwatch = Stopwatch::start();
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS {
        connections.spawn(ask(app.address, stopwatch));
    }
    let mut latencies = Vec::new();
    while let Some(asked) = connections.join_next().await {
        latencies.extend(asked??);
    }
    let wall = stopwatch.elapsed();
    let busy = machine::processor_time_of(app.program.id()).zip(before);
    let requests = as_float(latencies.len() as u64);
    let processor = busy.map(|(after, before)| (after - before).as_secs_f64() * 1e9 / requests);
    let [p50, p99] = percentiles(&mut latencies, [50, 99]);
    Ok([requests / wall.as_secs_f64(), p50, p99, processor.unwrap_or(f64::NAN)])
}

/// Sends requests on one connection for the length of a run. Returns their durations in
/// nanoseconds.
async fn ask(address: SocketAddr, stopwatch: Stopwatch) -> Result<Vec<u64>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut latencies = Vec::with_capacity(8_192);
    let mut buffer = [0; 4_096];
    while stopwatch.elapsed() < RUN {
        let asked = stopwatch.nanos();
        stream.write_all(REQUEST).await?;
        let mut length = 0;
        // The two letters of the handler end a response.
        while !buffer[..length].ends_with(b"\r\n\r\nok") {
            let read = stream.read(&mut buffer[length..]).await?;
            ensure!(
                read > 0,
                "the app closed the connection: {:?}",
                buffer[..length].utf8_chunks()
            );
            length += read;
        }
        ensure!(buffer.starts_with(b"HTTP/1.1 200 "), "the app did not answer with 200");
        latencies.push(stopwatch.nanos() - asked);
    }
    Ok(latencies)
}

/// An app in a separate process.
struct Process {
    program: Program,
    address: SocketAddr,
}

impl Process {
    fn start(app: App) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let (program, line) = Program::start(command.arg("inbound-app").arg(app.argument()))?;
        let address = line.parse().context("the app printed no address")?;
        Ok(Self { program, address })
    }
}
