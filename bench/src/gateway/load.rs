//! The clients: persistent connections with one call after the other.
//!
//! Requests are built beforehand, and only the end of a response is parsed, because the client must
//! cost less than the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::axis::Axis;
use super::response::{Answer, Stage};
use super::route::RouteStart;
use crate::machine;
use crate::measure::{as_float, percentiles};
use crate::stopwatch::Stopwatch;

/// Results of one turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    /// Calls per second.
    pub(super) rate: f64,
    /// Microseconds of a complete call, or to the first event of a stream.
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// Processor time of the proxy per call in microseconds; NaN without a proxy.
    pub(super) processor: f64,
}

/// Runs calls on one route for the given time.
pub(super) async fn slice(route_start: RouteStart, axis: Axis, length: Duration) -> Result<Slice> {
    let request = Arc::new(request(route_start, axis));
    let start = Arc::new(Barrier::new(axis.connections() + 1));
    let mut callers = JoinSet::new();
    for _ in 0..axis.connections() {
        let (request, start) = (Arc::clone(&request), Arc::clone(&start));
        callers.spawn(async move {
            // The first call is not counted: it may open a connection behind the proxy.
            let mut caller = Caller::connect(route_start.address).await;
            let ready = match &mut caller {
                Ok(caller) => caller.call(&request).await.map(drop),
                Err(_) => Ok(()),
            };
            // All connections must reach the barrier, or none would start.
            start.wait().await;
            ready?;
            caller?.keep_calling(&request, axis, length).await
        });
    }
    start.wait().await;
    let busy = || route_start.process.and_then(machine::processor_time_of_family);
    let (before, stopwatch) = (busy(), Stopwatch::start());
    let mut times = Vec::new();
    while let Some(called) = callers.join_next().await {
        times.extend(called??);
    }
    let wall = stopwatch.elapsed();
    let calls = as_float(times.len() as u64);
    let processor = busy().zip(before).map_or(f64::NAN, |(after, before)| {
        after.saturating_sub(before).as_secs_f64() * 1e6 / calls
    });
    let [p50, p99] = percentiles(&mut times, [50, 99]);
    Ok(Slice { rate: calls / wall.as_secs_f64(), p50, p99, processor })
}

/// A request like that of a provider's client library.
fn request(route_start: RouteStart, axis: Axis) -> Vec<u8> {
    let (RouteStart { address, path, .. }, body) = (route_start, axis.body());
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\naccept: application/json\r\n\
         authorization: Bearer sk-nobody\r\nuser-agent: tidegate-bench\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// One connection.
struct Caller {
    stream: TcpStream,
    answer: Answer,
}

/// Duration of a call in nanoseconds: to the first byte of the body, and to the last.
struct Took {
    first: u64,
    whole: u64,
}

impl Caller {
    async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, answer: Answer::default() })
    }

    /// Makes calls until the time is up, and returns their durations.
    async fn keep_calling(
        mut self,
        request: &[u8],
        axis: Axis,
        length: Duration,
    ) -> Result<Vec<u64>> {
        let stopwatch = Stopwatch::start();
        let mut times = Vec::with_capacity(8_192);
        while stopwatch.elapsed() < length {
            let took = self.call(request).await?;
            times.push(if axis.is_streamed() { took.first } else { took.whole });
        }
        Ok(times)
    }

    async fn call(&mut self, request: &[u8]) -> Result<Took> {
        self.answer.clear();
        let stopwatch = Stopwatch::start();
        self.stream.write_all(request).await?;
        let mut first = None;
        let mut buffer = [0; 8_192];
        loop {
            let read = self.stream.read(&mut buffer).await?;
            ensure!(read > 0, "the connection was closed before the end of a response");
            let stage = self.answer.add(&buffer[..read])?;
            if stage != Stage::Head && first.is_none() {
                first = Some(stopwatch.nanos());
            }
            if stage == Stage::Whole {
                let whole = stopwatch.nanos();
                return Ok(Took { first: first.unwrap_or(whole), whole });
            }
        }
    }
}
