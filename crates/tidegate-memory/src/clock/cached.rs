//! A clock that reads a word in memory, which a thread or the program keeps up to date.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use tidegate_core::{Time, WallTime};

use super::{Clock, ClockSource, SystemClock, wall_now};

/// Minimum resolution of a ticking clock. Below it, the thread would do nothing but tick.
const MIN_RESOLUTION: Duration = Duration::from_micros(50);

/// A clock that costs one load from memory and shows the time of its last tick. Clones share the
/// time.
///
/// A clock created with [`new`](Self::new) ticks when [`tick`](Self::tick) is called, for programs
/// with a loop of their own. One created with [`ticking`](Self::ticking) is updated by a thread.
///
/// Decisions use a time that is up to one tick old; refill since then is seen at the next tick. In
/// the long run, never more is admitted than the limit allows. Within a given span, up to one
/// tick's worth more can be admitted than with an exact clock, because tokens that refilled before
/// the span are spent inside it. If the operating system does not schedule the thread, time stands
/// still and then catches up; the excess is then what refilled during the stall, but at most a full
/// bucket at once. A denial can turn into a grant up to one tick late, and reported waits and
/// resets can be up to one tick too long.
///
/// Choose a tick that is short compared to the time in which a token refills. Guarantees for every
/// span, such as strict windows and minimum intervals between requests, need another clock.
///
/// ```
/// use std::time::Duration;
/// use tidegate::MemoryStore;
/// use tidegate_memory::clock::CachedClock;
/// let clock = CachedClock::ticking(Duration::from_millis(1))?;
/// let store = MemoryStore::builder().clock(clock).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CachedClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    now: AtomicU64,
    system: SystemClock,
    ticker: OnceLock<Thread>,
}

impl CachedClock {
    /// Creates a clock that starts at zero and stands still until [`tick`](Self::tick) is called.
    #[must_use]
    pub fn new() -> Self {
        let system = SystemClock::new();
        let shared = Shared { now: AtomicU64::new(0), system, ticker: OnceLock::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Creates a clock with a thread that updates it every `resolution`, at least 50 µs. The thread
    /// ends when the last clone is dropped.
    ///
    /// # Errors
    /// If the operating system cannot start the thread.
    pub fn ticking(resolution: Duration) -> io::Result<Self> {
        Ok(Self::with_ticker(resolution.max(MIN_RESOLUTION))?.0)
    }

    fn with_ticker(resolution: Duration) -> io::Result<(Self, JoinHandle<()>)> {
        let clock = Self::new();
        let shared = Arc::downgrade(&clock.shared);
        let ticker = thread::Builder::new()
            .name("tidegate-clock".to_owned())
            .spawn(move || keep_ticking(&shared, resolution))?;
        // It is set only here.
        let _ = clock.shared.ticker.set(ticker.thread().clone());
        Ok((clock, ticker))
    }

    /// Updates the clock to the current time.
    pub fn tick(&self) {
        self.shared.tick();
    }

    /// Sets the time, unless it is later already.
    #[cfg(test)]
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn set(&self, time: Time) {
        self.shared.now.fetch_max(time.as_nanos(), Ordering::AcqRel);
    }
}

impl Default for CachedClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for CachedClock {
    #[inline]
    fn now(&self) -> Time {
        Time::from_nanos(self.shared.now.load(Ordering::Acquire))
    }

    fn wall(&self) -> WallTime {
        wall_now()
    }

    fn into_source(self) -> ClockSource {
        ClockSource::Cached(self)
    }
}

impl Shared {
    fn tick(&self) {
        // Of two concurrent ticks, the one with the later reading may get here first.
        self.now.fetch_max(self.system.nanos(), Ordering::AcqRel);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(ticker) = self.ticker.get() {
            ticker.unpark();
        }
    }
}

fn keep_ticking(shared: &Weak<Shared>, resolution: Duration) {
    while let Some(clock) = shared.upgrade() {
        clock.tick();
        drop(clock);
        thread::park_timeout(resolution);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// Reads the clock until it shows a time after `time`.
    fn wait_for_tick(clock: &CachedClock, time: Time) -> Time {
        let elapsed = SystemClock::new();
        loop {
            let now = clock.now();
            if now > time {
                return now;
            }
            assert!(elapsed.now() < Time::ZERO.after(HOUR / 60), "the clock is stuck at {now:?}");
            thread::yield_now();
        }
    }

    #[test]
    fn time_stands_still_until_tick() {
        let clock = CachedClock::new();
        let other = clock.clone();
        assert_eq!(clock.now(), Time::ZERO);
        let machine = clock.shared.system.now();
        assert_eq!(clock.now(), Time::ZERO);
        clock.tick();
        let now = clock.now();
        assert!(now >= machine);
        assert_eq!((clock.now(), other.now()), (now, now), "clones share the time");
    }

    #[test]
    fn late_tick_does_not_move_time_backwards() {
        let clock = CachedClock::new();
        clock.shared.now.store(u64::MAX / 2, Ordering::Relaxed);
        clock.tick();
        assert_eq!(clock.now(), Time::from_nanos(u64::MAX / 2));
    }

    #[test]
    fn ticking_clock_advances() {
        let clock = CachedClock::ticking(Duration::ZERO).unwrap();
        let mut time = clock.now();
        for _ in 0..5 {
            time = wait_for_tick(&clock, time);
        }
        assert!(time <= clock.shared.system.now(), "a cached time is never in the future");
    }

    #[test]
    fn thread_ends_immediately_with_the_last_clone() {
        let (clock, ticker) = CachedClock::with_ticker(HOUR).unwrap();
        let last = clock.clone();
        drop(clock);
        wait_for_tick(&last, Time::ZERO);
        assert!(!ticker.is_finished(), "a clone still exists");
        drop(last);
        ticker.join().unwrap();
    }
}
