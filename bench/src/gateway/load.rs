//! The clients: persistent connections with one call after the other.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::axis::Axis;
use super::route::RouteStart;
use crate::http_client::{self, Connection};
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
            let mut connection = Connection::open(route_start.address).await;
            let ready = match &mut connection {
                Ok(connection) => connection.call(&request).await.map(drop),
                Err(_) => Ok(()),
            };
            // All connections must reach the barrier, or none would start.
            start.wait().await;
            ready?;
            keep_calling(connection?, &request, axis, length).await
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
    let headers = "authorization: Bearer sk-nobody\r\nuser-agent: tidegate-bench\r\n";
    http_client::post(route_start.address, route_start.path, headers, axis.body())
}

/// Makes calls until the time is up, and returns their durations.
async fn keep_calling(
    mut connection: Connection,
    request: &[u8],
    axis: Axis,
    length: Duration,
) -> Result<Vec<u64>> {
    let stopwatch = Stopwatch::start();
    let mut times = Vec::with_capacity(8_192);
    while stopwatch.elapsed() < length {
        let took = connection.call(request).await?;
        times.push(if axis.is_streamed() { took.first } else { took.whole });
    }
    Ok(times)
}
