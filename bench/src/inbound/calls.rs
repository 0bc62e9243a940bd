//! The app called in process, without a socket: nanoseconds, and instructions by callgrind.

use std::convert::Infallible;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, Response, StatusCode};
use axum::routing::RouterIntoService;
use indicatif::ProgressBar;
use tokio::runtime::Runtime;
use tower::Service as _;

use crate::machine;
use crate::measure::{Effort, Figure, as_float, summary};
use crate::stopwatch::Stopwatch;

use super::app::App;

/// Number of calls per run.
const CALLS: u64 = 100_000;
/// Numbers of calls under callgrind: a short and a long run, so that the startup cancels out.
const COUNTED: [u64; 2] = [1_000, 31_000];

pub(crate) fn steps(effort: Effort) -> u64 {
    (App::ALL.len() * effort.runs) as u64
}

/// Nanoseconds per call, in the order of [`App::ALL`].
///
/// They run on a separate thread, so that the pinning ends with it.
pub(crate) fn measure(
    effort: Effort,
    core: Option<usize>,
    progress: &ProgressBar,
) -> Result<Vec<Figure>> {
    std::thread::scope(|threads| {
        let pinned = threads.spawn(|| {
            if let Some(core) = core {
                machine::pin(core);
            }
            measure_shared(effort, progress)
        });
        pinned.join().unwrap_or_else(|_| bail!("the calling thread panicked"))
    })
}

fn measure_shared(effort: Effort, progress: &ProgressBar) -> Result<Vec<Figure>> {
    progress.set_message("calls in process");
    let mut callers = App::ALL.into_iter().map(Caller::new).collect::<Result<Vec<_>>>()?;
    let mut runs = vec![Vec::new(); callers.len()];
    for _ in 0..effort.runs {
        for (caller, runs) in callers.iter_mut().zip(&mut runs) {
            let stopwatch = Stopwatch::start();
            caller.call(CALLS)?;
            runs.push(stopwatch.elapsed().as_secs_f64() * 1e9 / as_float(CALLS));
            progress.inc(1);
        }
    }
    Ok(runs.iter().map(|runs| summary(runs, 0)).collect())
}

/// Makes this many calls and exits, for callgrind.
pub(crate) fn alone(app: App, calls: u64) -> Result<()> {
    Caller::new(app)?.call(calls)
}

/// Instructions per call.
pub(crate) fn instructions(app: App) -> Result<f64> {
    let [short, long] = [collected(app, COUNTED[0])?, collected(app, COUNTED[1])?];
    Ok(as_float(long.saturating_sub(short)) / as_float(COUNTED[1] - COUNTED[0]))
}

/// Instructions of a process that makes this many calls.
fn collected(app: App, calls: u64) -> Result<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe()?).arg("inbound-calls");
    let output = command.arg(app.argument()).arg(calls.to_string()).output();
    let output = output.context("cannot start valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind failed: {}", text.trim());
    let line = text.lines().find_map(|line| line.split_once("Collected :"));
    let Some((_, number)) = line else { bail!("valgrind printed no number") };
    Ok(number.trim().parse()?)
}

struct Caller {
    service: RouterIntoService<Body>,
    runtime: Runtime,
}

impl Caller {
    fn new(app: App) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        // As servers do; otherwise axum would rebuild its routes for every request.
        let router: Router = app.router()?.with_state(());
        Ok(Self { service: router.into_service(), runtime })
    }

    fn call(&mut self, calls: u64) -> Result<()> {
        let peer = ConnectInfo(SocketAddr::from((Ipv4Addr::LOCALHOST, 4_711)));
        let service = &mut self.service;
        let denied = self.runtime.block_on(async {
            let mut denied = 0;
            for _ in 0..calls {
                let mut request = Request::new(Body::empty());
                request.extensions_mut().insert(peer);
                let answer: Result<Response<Body>, Infallible> = service.call(request).await;
                let Ok(response) = black_box(answer);
                denied += u64::from(response.status() != StatusCode::OK);
            }
            denied
        });
        ensure!(denied == 0, "{denied} calls were not answered with 200");
        Ok(())
    }
}
