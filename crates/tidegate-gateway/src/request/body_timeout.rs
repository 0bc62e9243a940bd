//! How slowly a caller may send its body.
//!
//! A body has a credit of time that runs while its caller is waited for. Bytes that come earn some of
//! it back, never more than it was at first: a body that came quickly but for its last bytes has no
//! more time for them than any other. Beside it there is a bound on all that waiting together. It does
//! not run while the provider does not read what has come, or while the call waits for its turn.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Bytes for which a caller gets a second: 8 KiB, which a line of 64 kbit/s carries.
const BYTES_PER_SECOND: u64 = 8 * 1_024;
/// How long a caller may send nothing in the middle of a body that is buffered. Every such body takes
/// memory from others, and no connection that works pauses for so long.
pub(crate) const BUFFERED_IDLE: Duration = Duration::from_secs(20);
/// How long the caller of a buffered body is waited for in all: 64 MiB at 110 KiB/s.
const BUFFERED_TOTAL: Duration = Duration::from_secs(10 * 60);
/// How long a caller may send nothing in the middle of a body that is sent on as it comes.
pub(crate) const STREAMED_IDLE: Duration = Duration::from_secs(60);
/// How long the caller of a streamed body is waited for in all: 500 MB at 140 KB/s.
const STREAMED_TOTAL: Duration = Duration::from_secs(60 * 60);

/// The time that the caller of one body has left.
#[derive(Debug)]
pub(crate) struct BodyTimeout {
    /// The most that the credit can be.
    max_credit: Duration,
    credit: Duration,
    total: Duration,
    waiting_since: Option<Instant>,
}

impl BodyTimeout {
    /// Of a body that is buffered, whose caller is waited for from now on.
    pub(crate) const fn buffered(now: Instant) -> Self {
        let max_credit = BUFFERED_IDLE;
        Self { max_credit, credit: max_credit, total: BUFFERED_TOTAL, waiting_since: Some(now) }
    }

    /// Of a body that is sent on as it comes.
    pub(crate) const fn streamed() -> Self {
        let max_credit = STREAMED_IDLE;
        Self { max_credit, credit: max_credit, total: STREAMED_TOTAL, waiting_since: None }
    }

    /// So many bytes have come.
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

    /// Until when the caller is waited for, if nothing comes.
    pub(crate) fn deadline(&mut self) -> Instant {
        *self.waiting_since.get_or_insert_with(Instant::now) + self.credit.min(self.total)
    }

    /// Ready when the caller has been waited for long enough. The timer may be any, as long as it is
    /// the same each time.
    pub(crate) fn poll_expired(
        &mut self,
        mut timer: Pin<&mut Sleep>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let deadline = self.deadline();
        if deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
        }
        // The end moves with every piece. The timer does not follow: if it is early it is set again.
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

    /// How long a caller lasts that sends `size` bytes at once and then some each second.
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
