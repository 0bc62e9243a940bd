//! Crowds that wait at a pacer.

use std::future::IntoFuture as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use tidegate::pacer::Pacer;
use tidegate::{Engine, Policy};

use super::{BURST, RATE, Run, grown};
use crate::machine;
use crate::pacing::waiters::Waiters;

const KEY: &str = "key-1";
const HOUR: Duration = Duration::from_secs(3_600);

/// All wait for tokens.
pub(super) async fn rate(waiters: usize) -> Result<Run> {
    let engine = Engine::new();
    let policy = Policy::per_second(RATE.into()).capacity(BURST.into()).build()?;
    let limiter = engine.limiter("requests", policy)?;
    let pacer = Pacer::builder(&engine).max_waiting(waiters).build();
    limiter.hold(KEY, HOUR).now()?;
    let waiters_state = Waiters::new(waiters);
    let before = machine::resident_bytes();
    waiters_state.fill(|| pacer.acquire([limiter.charge(KEY, 1)]).into_future()).await?;
    ensure!(pacer.gauges().waiting == waiters, "not all tasks wait");
    let grown = grown(before);
    let open = || {
        let _ = limiter.reset(KEY).now();
        // Like the peers, it opens with an empty bucket.
        let _ = limiter.take(KEY).cost(BURST.into()).now();
        pacer.nudge();
    };
    let drained = Some(waiters_state.drain(open).await?);
    Ok(Run { grown, drained })
}

/// All wait for the only slot.
pub(super) async fn slot(waiters: usize) -> Result<Run> {
    let engine = Engine::new();
    let policy = Policy::per_second(1).capacity(1_000_000_000).build()?;
    let limiter = engine.limiter("requests", policy)?;
    let pacer = Pacer::builder(&engine).concurrency(1).max_waiting(waiters).build();
    let first = pacer.acquire([limiter.charge(KEY, 1)]).await?;
    let waiters_state = Waiters::new(waiters);
    let before = machine::resident_bytes();
    waiters_state.fill(|| pacer.acquire([limiter.charge(KEY, 1)]).into_future()).await?;
    ensure!(pacer.gauges().waiting == waiters, "not all tasks wait");
    let grown = grown(before);
    let drained = Some(waiters_state.drain(|| drop(first)).await?);
    Ok(Run { grown, drained })
}
