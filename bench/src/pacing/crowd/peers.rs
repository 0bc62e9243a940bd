//! Crowds that wait at the peers, and the baseline.

use std::future::{Future as _, poll_fn};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Result, ensure};
use governor::{Quota, RateLimiter};
use leaky_bucket::RateLimiter as LeakyBucket;
use tokio::sync::{Notify, Semaphore};

use super::{BURST, RATE, Run, grown};
use crate::machine;
use crate::pacing::waiters::Waiters;

/// Tokens that the first waiter takes from leaky-bucket: one second, during which the others
/// arrive.
const HEAD: usize = RATE as usize;

/// All wait for the only slot.
pub(super) async fn semaphore(waiters: usize) -> Result<Run> {
    let semaphore = Arc::new(Semaphore::new(0));
    let waiters_state = Waiters::new(waiters);
    let before = machine::resident_bytes();
    waiters_state.fill(|| semaphore.clone().acquire_owned()).await?;
    let grown = grown(before);
    let drained = Some(waiters_state.drain(|| semaphore.add_permits(1)).await?);
    Ok(Run { grown, drained })
}

/// All wait for tokens, behind a waiter that takes all tokens for a while.
pub(super) async fn leaky_bucket(waiters: usize) -> Result<Run> {
    let mut builder = LeakyBucket::builder();
    builder.initial(0).max(BURST as usize);
    builder.refill(RATE as usize / 1_000).interval(Duration::from_millis(1));
    let bucket = Arc::new(builder.build());
    let waiters_state = Waiters::new(waiters);
    let mut head = Box::pin(bucket.clone().acquire_owned(HEAD));
    // Polled once here, it is first in the queue.
    let asked = poll_fn(|context| Poll::Ready(head.as_mut().poll(context))).await;
    ensure!(asked.is_pending(), "the first waiter did not wait");
    let head = tokio::spawn({
        let waiters_state = waiters_state.clone();
        async move {
            head.await;
            waiters_state.nanos()
        }
    });
    let before = machine::resident_bytes();
    waiters_state.fill(|| bucket.clone().acquire_owned(1)).await?;
    let grown = grown(before);
    ensure!(!head.is_finished(), "the first waiter got its tokens before all others waited");
    let opened = head.await?;
    let drained = Some(waiters_state.drain_since(opened).await?);
    Ok(Run { grown, drained })
}

/// All wait at a `Notify`, and poll the limiter when it opens.
pub(super) async fn governor(waiters: usize) -> Result<Run> {
    let limiter =
        Arc::new(RateLimiter::direct(Quota::per_second(some(RATE)).allow_burst(some(BURST))));
    let gate = Arc::new(Notify::new());
    let waiters_state = Waiters::new(waiters);
    let ask = || {
        let (limiter, gate) = (limiter.clone(), gate.clone());
        async move {
            gate.notified().await;
            limiter.until_ready().await;
        }
    };
    waiters_state.fill(ask).await?;
    let open = || {
        let _ = limiter.check_n(some(BURST));
        gate.notify_waiters();
    };
    let drained = Some(waiters_state.drain(open).await?);
    Ok(Run { grown: None, drained })
}

/// All wait for an hour.
pub(super) async fn governor_parked(waiters: usize) -> Result<Run> {
    let limiter = Arc::new(RateLimiter::direct(Quota::per_hour(NonZeroU32::MIN)));
    limiter.until_ready().await;
    let waiters_state = Waiters::new(waiters);
    let before = machine::resident_bytes();
    let ask = || {
        let limiter = limiter.clone();
        async move { limiter.until_ready().await }
    };
    waiters_state.fill(ask).await?;
    Ok(Run { grown: grown(before), drained: None })
}

/// The memory of waiting tasks without a limiter.
pub(super) async fn baseline(waiters: usize) -> Result<Run> {
    let gate = Arc::new(Notify::new());
    let waiters_state = Waiters::new(waiters);
    let before = machine::resident_bytes();
    waiters_state.fill(|| gate.clone().notified_owned()).await?;
    Ok(Run { grown: grown(before), drained: None })
}

fn some(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}
