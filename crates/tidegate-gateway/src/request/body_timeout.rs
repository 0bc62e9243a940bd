//! How slowly a caller may send its body.
//!
//! A body has a time credit that runs down while the gateway waits for its caller. Received bytes
//! earn some of it back, up to the initial credit: a body that arrived quickly has no more time for
//! its last bytes than any other. The total waiting time is bounded too. Neither runs while the
//! provider does not read, or while the call is queued.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Bytes that earn one second: 8 KiB, the rate of a 64 kbit/s line.
const BYTES_PER_SECOND: u64 = 8 * 1_024;
/// Idle timeout of a buffered body. Every such body uses memory that others need, and no working
/// connection pauses for so long.
pub(crate) const BUFFERED_IDLE: Duration = Duration::from_secs(20);
/// Total waiting time for a buffered body: 64 MiB at 110 KiB/s.
const BUFFERED_TOTAL: Duration = Duration::from_secs(10 * 60);
/// Idle timeout of a streamed body.
pub(crate) const STREAMED_IDLE: Duration = Duration::from_secs(60);
/// Total waiting time for a streamed body: 500 MB at 140 KB/s.
const STREAMED_TOTAL: Duration = Duration::from_secs(60 * 60);

/// The remaining time for the caller of one body.
#[derive(Debug)]
pub(crate) struct BodyTimeout {
    /// Upper bound of the credit.
    max_credit: Duration,
    credit: Duration,
    total: Duration,
    waiting_since: Option<Instant>,
}

impl BodyTimeout {
    /// Timeout of a buffered body. Waiting starts at `now`.
    pub(crate) const fn buffered(now: Instant) -> Self {
        let max_credit = BUFFERED_IDLE;
        Self { max_credit, credit: max_credit, total: BUFFERED_TOTAL, waiting_since: Some(now) }
    }

    /// Timeout of a streamed body. Waiting starts with the first poll.
    pub(crate) const fn streamed() -> Self {
        let max_credit = STREAMED_IDLE;
        Self { max_credit, credit: max_credit, total: STREAMED_TOTAL, waiting_since: None }
    }

    /// Stops waiting and credits `size` received bytes.
    pub(crate) fn received(&mut self, size: usize) {
        if let Some(since) = self.waiting_since.take() {
            let waited = since.elapsed();
            self.credit = self.credit.saturating_sub(waited);
            self.total = self.total.saturating_sub(waited);
        }
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        let earned = Duration::from_micros(size.saturating_mul(1_000_000) / BYTES_PER_SECOND);
        self.credit = self.credit.saturating_add(earned).min(self.max_credit);
    }

    /// Returns when the body times out if nothing arrives. Starts waiting if necessary.
    pub(crate) fn deadline(&mut self) -> Instant {
        *self.waiting_since.get_or_insert_with(Instant::now) + self.credit.min(self.total)
    }

    /// Ready when the body has timed out. `timer` may be any timer, but must be the same one each
    /// time.
    pub(crate) fn poll_expired(
        &mut self,
        mut timer: Pin<&mut Sleep>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let deadline = self.deadline();
        if deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
        }
        // The deadline moves with every chunk. The timer is only reset when it fires early.
        while timer.as_mut().poll(context).is_ready() {
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Time until a caller times out that sends `size` bytes at once and `each_second` bytes per
    /// second afterwards.
    async fn time_until_timeout(size: usize, each_second: usize) -> Duration {
        let start = Instant::now();
        let mut timeout = BodyTimeout::buffered(start);
        timeout.received(size);
        while timeout.deadline() > Instant::now() + SECOND {
            advance(SECOND).await;
            timeout.received(each_second);
        }
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_start_gains_no_time_for_the_rest() {
        for size in [0, 64 << 20] {
            let elapsed = time_until_timeout(size, 1).await;
            assert!((SECOND * 18..=SECOND * 20).contains(&elapsed), "{size}: {elapsed:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_steady_caller_gets_exactly_the_total_time() {
        let elapsed = time_until_timeout(0, 16 << 10).await;
        assert!((SECOND * 598..=SECOND * 600).contains(&elapsed), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn time_not_spent_waiting_for_the_caller_is_not_counted() {
        let mut timeout = BodyTimeout::streamed();
        timeout.received(1);
        advance(SECOND * 7_200).await;
        assert_eq!(timeout.deadline(), Instant::now() + STREAMED_IDLE);
    }
}
