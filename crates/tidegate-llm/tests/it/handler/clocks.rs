//! An injected clock drives the waits (R87).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tidegate::clock::{Clock, ManualClock};
use tidegate_core::{Time, WallTime};
use tidegate_llm::pipeline::{Planned, RateLimitHandler};
use tidegate_memory::clock::ClockWatcher;
use tokio::time::timeout;

use super::{per_minute, plan, wait_of};

const SECOND: Duration = Duration::from_secs(1);

/// A manual clock that counts how often it is read.
#[derive(Clone, Debug, Default)]
struct CountedClock {
    clock: ManualClock,
    reads: Arc<AtomicU64>,
    /// Whether it hides that it is moved by hand.
    is_silent: bool,
}

impl Clock for CountedClock {
    fn now(&self) -> Time {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.clock.now()
    }

    fn wall(&self) -> WallTime {
        self.clock.wall()
    }

    fn watch(&self, watcher: Weak<dyn ClockWatcher>) -> bool {
        !self.is_silent && self.clock.watch(watcher)
    }
}

/// Tokio's time does not move here: only the injected clock can end the wait.
#[tokio::test]
async fn injected_clock_ends_a_wait() {
    let clock = ManualClock::new();
    let handler = RateLimitHandler::new().clock(clock.clone());
    let plan = plan(per_minute(1));
    assert_eq!(wait_of(&handler, &plan).await, Duration::ZERO);
    let mut waiting = Box::pin(wait_of(&handler, &plan));
    assert!(waiting.as_mut().now_or_never().is_none());
    clock.advance(SECOND * 60 - Duration::from_nanos(1));
    assert!(waiting.as_mut().now_or_never().is_none());
    clock.advance(Duration::from_nanos(1));
    assert_eq!(waiting.as_mut().now_or_never(), Some(SECOND * 60));
}

/// An hour passes by tokio's timers while the injected clock stands still, one nanosecond before
/// the permit.
#[tokio::test(start_paused = true)]
async fn frozen_clock_is_not_polled() {
    for is_silent in [false, true] {
        let clock = CountedClock { is_silent, ..CountedClock::default() };
        let handler = RateLimitHandler::new().clock(clock.clone());
        let plan = plan(per_minute(60));
        wait_of(&handler, &plan).await;
        clock.clock.advance(SECOND - Duration::from_nanos(1));
        let reads = clock.reads.load(Ordering::Relaxed);
        let waiting = handler.handle(Planned::new((), plan.clone()));
        assert!(timeout(SECOND * 3_600, waiting).await.is_err());
        let reads = clock.reads.load(Ordering::Relaxed) - reads;
        // A clock that does not tell is read a few times a second, less and less often.
        let most = if is_silent { 5 * 3_600 } else { 10 };
        assert!(reads <= most, "{reads} reads, silent: {is_silent}");
    }
}
