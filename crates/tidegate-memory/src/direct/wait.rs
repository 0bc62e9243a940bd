//! Waiting for a [`DirectLimiter`].

use std::time::Duration;

use tidegate_core::{Decision, Denial, Receipt};

use super::DirectLimiter;
use crate::clock::sleep;

impl DirectLimiter {
    /// Waits until `cost` tokens can be spent, spends them, and returns how long it waited by the
    /// clock of this limiter. Callers are served in the order of their calls: each reserves an
    /// instant of its own and sleeps until then, with tokio's timers unless the clock is a
    /// [manual](crate::clock::ManualClock) one. If the future is dropped early, its tokens are refunded, except for what later
    /// reservations depend on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tidegate::clock::TokioClock;
    /// use tidegate::{DirectLimiter, Policy};
    ///
    /// let policy = Policy::per_second(1).capacity(1).build()?;
    /// let limiter = DirectLimiter::with_clock(policy, TokioClock::new())?;
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(limiter.wait(1, minute).await, Ok(Duration::ZERO));
    /// assert_eq!(limiter.wait(1, minute).await, Ok(Duration::from_secs(1)));
    /// assert!(limiter.wait(2, minute).await.is_err(), "more than its capacity");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If it would take longer than `max_wait` or the horizon of the policy. Nothing is spent then.
    pub async fn wait(&self, cost: u64, max_wait: Duration) -> Result<Duration, Denial> {
        let grant = match self.reserve(cost, max_wait) {
            Decision::Allowed(grant) => grant,
            Decision::Denied(denial) => return Err(denial),
            // `Decision` is non-exhaustive; treat unknown variants as denied.
            _ => return Err(Denial::new(Default::default())),
        };
        if grant.wait.is_zero() {
            return Ok(Duration::ZERO);
        }
        let mut reservation = Reservation { limiter: self, cost, receipt: Some(grant.receipt) };
        let waited = sleep::sleep(&self.clock, grant.wait).await;
        reservation.receipt = None;
        Ok(waited)
    }
}

/// Refunds the reservation if the wait ends early.
struct Reservation<'l> {
    limiter: &'l DirectLimiter,
    cost: u64,
    /// `None` once the wait is over.
    receipt: Option<Receipt>,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some(receipt) = &self.receipt {
            let delta = i64::try_from(self.cost).unwrap_or(i64::MAX);
            // The limiter issued the receipt itself, so it accepts it.
            let _ = self.limiter.settle(-delta, Some(receipt));
        }
    }
}
