//! A clock that is a word in memory: whoever keeps it up to date pays for the reading.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use tidegate_core::{Time, WallTime};

use super::{Clock, ClockSource, SystemClock, wall_now};

/// The finest resolution of a clock with a thread of its own; below it, the thread would do
/// nothing but tick.
const MIN_RESOLUTION: Duration = Duration::from_micros(50);

/// A clock that costs a load from memory, and shows the time of its last tick. Clones show the
/// same time.
///
/// Made by [`new`](Self::new), it ticks when it is told to, for programs with a loop of their own;
/// made by [`ticking`](Self::ticking), a thread sees to that.
///
/// What a limit is decided by is then a time that is up to one tick old, and all that came since
/// is seen at the next tick. In the long run never more is admitted than the limit allows. But
/// within a given span it may be one tick's worth more than by an exact clock: what could have
/// been spent before the span begins is spent inside of it. If the operating system does not run
/// the thread of the clock, time stands still meanwhile and then makes up for it, and it is that
/// stall's worth, but no more than a full bucket at once. Also, a denial may be up to one tick late
/// in turning into a grant, and waits and resets that are told are up to one tick too long.
///
/// Choose a tick that is short beside the time in which a token comes. What must hold for every
/// span, as strict windows and the least interval between two requests do, wants another clock.
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
    /// A clock that starts now and stands still until [`tick`](Self::tick).
    #[must_use]
    pub fn new() -> Self {
        let system = SystemClock::new();
        let shared = Shared { now: AtomicU64::new(0), system, ticker: OnceLock::new() };
        Self { shared: Arc::new(shared) }
    }

    /// A clock with a thread that makes it tick every `resolution`, 50 us at the least. The thread
    /// ends with the last clone.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn ticking(resolution: Duration) -> io::Result<Self> {
        Ok(Self::with_ticker(resolution.max(MIN_RESOLUTION))?.0)
    }

    fn with_ticker(resolution: Duration) -> io::Result<(Self, JoinHandle<()>)> {
        let clock = Self::new();
        let shared = Arc::downgrade(&clock.shared);
        let ticker = thread::Builder::new()
            .name("tidegate-clock".to_owned())
            .spawn(move || keep_ticking(&shared, resolution))?;
        // Nobody else sets it.
        let _ = clock.shared.ticker.set(ticker.thread().clone());
        Ok((clock, ticker))
    }

    /// Shows the time of now from here on.
    pub fn tick(&self) {
        self.shared.tick();
    }

    /// Shows this time, unless it shows a later one.
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
        // Two may tick at once, and the later one may be the first to get here.
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

    /// Reads until the clock has moved on from `time`.
    fn moves_on(clock: &CachedClock, time: Time) -> Time {
        let elapsed = SystemClock::new();
        loop {
            let now = clock.now();
            if now > time {
                return now;
            }
            assert!(elapsed.now() < Time::ZERO.after(HOUR / 60), "it stands still at {now:?}");
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
        assert_eq!((clock.now(), other.now()), (now, now), "clones show the same");
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
            time = moves_on(&clock, time);
        }
        assert!(time <= clock.shared.system.now(), "a cached time is never of the future");
    }

    #[test]
    fn thread_ends_immediately_with_the_last_clone() {
        let (clock, ticker) = CachedClock::with_ticker(HOUR).unwrap();
        let last = clock.clone();
        drop(clock);
        moves_on(&last, Time::ZERO);
        assert!(!ticker.is_finished(), "somebody still reads it");
        drop(last);
        ticker.join().unwrap();
    }
}
