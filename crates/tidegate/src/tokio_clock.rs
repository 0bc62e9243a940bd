//! Tokio's clock, which a test can pause and advance.

use tidegate_core::{Time, WallTime};
use tidegate_memory::clock::{Clock, wall_now};
use tokio::time::Instant;

/// The clock of tokio's timers. A store with this clock, and the pacers on it, follow the paused
/// time of a test.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tidegate::clock::TokioClock;
/// use tidegate::pacer::Pacer;
/// use tidegate::{Engine, MemoryStore, Policy};
///
/// let store = MemoryStore::builder().clock(TokioClock::new()).build()?;
/// let engine = Engine::on(Arc::new(store));
/// let calls = engine.limiter("calls", Policy::per(1, Duration::from_secs(60)).build()?)?;
/// let pacer = Pacer::new(&engine);
/// let _first = pacer.acquire([calls.charge("key", 1)]).await?;
/// let second = pacer.acquire([calls.charge("key", 1)]).await?; // a minute that takes no time
/// assert_eq!(second.waited(), Duration::from_secs(60));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: Instant,
}

impl TokioClock {
    /// Creates a clock that starts now.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Time {
        let elapsed = self.origin.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    fn wall(&self) -> WallTime {
        wall_now()
    }
}
