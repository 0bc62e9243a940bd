//! Clock on the processor's time stamp counter, synchronized with the operating system's clock.
//!
//! There is one counter per process, calibrated when the first clock is created; a [`CounterClock`]
//! is a reference to it and an origin. Reading the time takes a read of the counter, a
//! multiplication and an addition. Once a second, one of the readers corrects the conversion
//! (`calibration.rs` has the arithmetic, `seqlock.rs` shares it between threads). There is no
//! background thread, and other readers write nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, TryLockError};

use tidegate_core::{Time, WallTime};

use super::calibration::{Anchor, Calibration, Unreliable, Validity};
use super::seqlock::{Reading, SeqLock};
use super::{Clock, ClockSource, SystemClock, ticks, wall_now};

/// Duration of the first calibration, once per process, in nanoseconds.
const CALIBRATION_NS: u64 = 2_000_000;
/// Interval between corrections, in nanoseconds.
const CORRECTION_PERIOD_NS: u64 = 1_000_000_000;
/// Number of samples per measurement; the tightest is used.
const SAMPLES: u32 = 8;
/// Where Linux reports the clock source of its own clock.
#[cfg(target_os = "linux")]
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Why [`CounterClock`] is not available. [`SystemClock`] always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CounterUnavailable {
    /// The processor has no time stamp counter, or does not guarantee a constant rate.
    #[error("the processor has no invariant time stamp counter")]
    NotInvariant,
    /// The operating system uses another clock source, or does not report which.
    #[error("the operating system does not use the time stamp counter as its clock")]
    NotTrusted,
    /// The counter and the operating system's clock disagree.
    #[error("the time stamp counter disagrees with the operating system's clock")]
    Disagrees,
}

/// A clock on the processor's time stamp counter, counted from its creation.
///
/// It follows the operating system's monotonic clock: from the first correction on, one second
/// after the first clock was created, they differ by a few microseconds at most, unless the
/// operating system corrects its own clock. It never runs backwards, neither between threads nor at
/// a correction.
///
/// If the counter turns out to be unsteady, the clock permanently falls back to the operating
/// system's clock; it may stand still for up to a second then, but is not set back. The same
/// happens if the operating system slews its clock by more than 0.4 % for several seconds, as it
/// may be configured to do after a large step, since the two cases cannot be distinguished.
/// Decisions stay correct and become somewhat more expensive. See
/// [`has_fallen_back`](Self::has_fallen_back).
///
/// ```
/// use tidegate_memory::clock::{Clock, CounterClock};
/// match CounterClock::new() {
///     Ok(clock) => assert!(clock.now() <= clock.now_ordered()),
///     Err(reason) => println!("using the system clock: {reason}"),
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CounterClock {
    counter: &'static Counter,
    origin: u64,
}

impl CounterClock {
    /// Creates a clock that starts at zero. The first one in a process takes about 2 ms to create.
    ///
    /// # Errors
    /// If there is no reliable counter.
    pub fn new() -> Result<Self, CounterUnavailable> {
        static COUNTER: OnceLock<Result<Counter, CounterUnavailable>> = OnceLock::new();
        let counter = COUNTER
            .get_or_init(|| Counter::calibrate(CORRECTION_PERIOD_NS))
            .as_ref()
            .map_err(|&reason| reason)?;
        Ok(Self { counter, origin: counter.at(ticks::now_ordered()) })
    }

    /// Returns the time, read after all preceding instructions have completed. The processor may
    /// execute [`now`](Clock::now) slightly earlier. Use this one under a lock: it is not before
    /// any reading made earlier under the same lock.
    #[must_use]
    #[inline]
    pub fn now_ordered(&self) -> Time {
        self.since_origin(ticks::now_ordered())
    }

    /// Returns whether the clock has fallen back to the operating system's clock in this process.
    #[must_use]
    pub fn has_fallen_back(&self) -> bool {
        self.counter.fell_back.load(Ordering::Acquire)
    }

    #[inline]
    fn since_origin(&self, ticks: u64) -> Time {
        Time::from_nanos(self.counter.at(ticks).saturating_sub(self.origin))
    }
}

impl Clock for CounterClock {
    #[inline]
    fn now(&self) -> Time {
        self.since_origin(ticks::now())
    }

    fn wall(&self) -> WallTime {
        wall_now()
    }

    fn into_source(self) -> ClockSource {
        ClockSource::Counter(self)
    }
}

/// The process-wide counter, in nanoseconds.
#[derive(Debug)]
struct Counter {
    conversions: SeqLock,
    validity: Validity,
    calibration: Mutex<Calibration>,
    system: SystemClock,
    /// Whether the counter is no longer used, and the lower bound of the time since then.
    fell_back: AtomicBool,
    floor: AtomicU64,
}

/// Result of an attempt to recalibrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recalibration {
    /// This thread recalibrated, if it was due.
    Done,
    /// Another thread is recalibrating.
    InProgress,
}

impl Counter {
    fn calibrate(period: u64) -> Result<Self, CounterUnavailable> {
        if !ticks::is_invariant() {
            return Err(CounterUnavailable::NotInvariant);
        }
        if !is_trusted() {
            return Err(CounterUnavailable::NotTrusted);
        }
        let system = SystemClock::new();
        let disagrees = |Unreliable| CounterUnavailable::Disagrees;
        let first = anchor(&system).map_err(disagrees)?;
        while system.nanos() < first.ns.saturating_add(CALIBRATION_NS) {
            std::hint::spin_loop();
        }
        let second = anchor(&system).map_err(disagrees)?;
        let calibration = Calibration::new(first, second, period).map_err(disagrees)?;
        Ok(Self::new(calibration, system))
    }

    fn new(calibration: Calibration, system: SystemClock) -> Self {
        Self {
            conversions: SeqLock::new(calibration.conversion(), calibration.validity()),
            validity: calibration.validity(),
            calibration: Mutex::new(calibration),
            system,
            fell_back: AtomicBool::new(false),
            floor: AtomicU64::new(0),
        }
    }

    /// Converts `ticks`, which must have been read just now.
    #[inline]
    fn at(&self, ticks: u64) -> u64 {
        self.conversions.at(ticks).unwrap_or_else(|| self.at_slow(ticks))
    }

    #[cold]
    #[inline(never)]
    fn at_slow(&self, ticks: u64) -> u64 {
        let mut ticks = ticks;
        loop {
            if self.fell_back.load(Ordering::Acquire) {
                return self.system.nanos().max(self.floor.load(Ordering::Relaxed));
            }
            match self.conversions.find(ticks, self.validity) {
                Reading::Valid(time) => return time,
                Reading::Due(time) => {
                    // If another thread is recalibrating, the old conversion is still valid.
                    self.recalibrate();
                    return time;
                }
                // The clock was not read for a while, or this thread was delayed after it read the
                // counter. One thread recalibrates; all others read again meanwhile.
                Reading::Unknown => {
                    if self.recalibrate() == Recalibration::InProgress {
                        std::thread::yield_now();
                    }
                }
            }
            ticks = ticks::now_ordered();
        }
    }

    /// Corrects the clock if that is due, unless another thread is doing so.
    fn recalibrate(&self) -> Recalibration {
        let mut calibration = match self.calibration.try_lock() {
            Ok(calibration) => calibration,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => return Recalibration::InProgress,
        };
        match anchor(&self.system).and_then(|seen| calibration.recalibrate(seen)) {
            Ok(Some(conversion)) => self.conversions.publish(conversion),
            Ok(None) => {}
            Err(Unreliable) => self.fall_back(calibration.end()),
        }
        Recalibration::Done
    }

    /// Permanently uses the operating system's clock, but never shows a time before `floor`.
    fn fall_back(&self, floor: u64) {
        self.floor.fetch_max(floor, Ordering::Relaxed);
        self.conversions.close();
        // A thread that sees this flag also sees that no conversion is valid.
        self.fell_back.store(true, Ordering::Release);
    }
}

/// Samples the counter and the operating system's clock together. Takes the tightest of several
/// samples, since the thread may be interrupted between the two readings.
fn anchor(system: &SystemClock) -> Result<Anchor, Unreliable> {
    let readings =
        (0..SAMPLES).map(|_| (ticks::now_ordered(), system.nanos(), ticks::now_ordered()));
    tightest(readings)
}

/// Selects the best of several samples of counter, operating system and counter again. Samples in
/// which the counter went back were taken across a migration to another core. They would appear the
/// tightest, so they are ignored; if there are no others, the counter is unreliable.
fn tightest(readings: impl Iterator<Item = (u64, u64, u64)>) -> Result<Anchor, Unreliable> {
    let widths = readings.filter_map(|(before, ns, after)| {
        let width = after.checked_sub(before)?;
        Some((width, Anchor { ticks: before + width / 2, ns }))
    });
    widths.min_by_key(|(width, _)| *width).map(|(_, anchor)| anchor).ok_or(Unreliable)
}

/// Returns whether the operating system itself uses the counter: it monitors it better than we can.
#[cfg(target_os = "linux")]
fn is_trusted() -> bool {
    std::fs::read_to_string(CLOCK_SOURCE).is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(not(target_os = "linux"))]
const fn is_trusted() -> bool {
    false
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    /// Creates a separate counter; `None` on machines without one, where there is nothing to test.
    fn counter(period: u64) -> Option<Counter> {
        Counter::calibrate(period).ok()
    }

    fn fell_back(counter: &Counter) -> bool {
        counter.fell_back.load(Ordering::Relaxed)
    }

    #[test]
    fn corrections_never_move_time_backwards_between_threads() {
        const OFTEN: u64 = CORRECTION_PERIOD_NS / 5_000;
        let Some(counter) = counter(OFTEN) else { return };
        let (latest, until) = (Mutex::new(0), counter.system.nanos() + 1_000 * OFTEN);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut own = 0;
                    while own < until {
                        let mut latest = latest.lock().unwrap();
                        own = counter.at(ticks::now_ordered());
                        assert!(own >= *latest, "{own} after {latest}");
                        *latest = own;
                    }
                });
            }
        });
        let conversion = counter.calibration.lock().unwrap().conversion();
        assert!(conversion.ns > until / 2, "not corrected: {conversion:?}");
    }

    #[test]
    fn counter_and_system_clock_agree() {
        let Some(counter) = counter(CORRECTION_PERIOD_NS) else { return };
        for _ in 0..1_000 {
            let before = counter.system.nanos();
            let time = counter.at(ticks::now_ordered());
            let after = counter.system.nanos();
            // About 100 ppm of the few milliseconds since the calibration, with a wide margin.
            let slack = CORRECTION_PERIOD_NS / 1_000;
            assert!(time + slack > before && time < after + slack, "{before} {time} {after}");
        }
    }

    #[test]
    fn counter_with_a_wrong_rate_falls_back_without_moving_time_backwards() {
        let Some(reference) = counter(CORRECTION_PERIOD_NS) else { return };
        let first = anchor(&reference.system).unwrap();
        // A rate three times too fast, checked every 20 ms.
        let second = Anchor {
            ticks: first.ticks + reference.validity.due,
            ns: first.ns + 3 * CORRECTION_PERIOD_NS,
        };
        let calibration = Calibration::new(first, second, CORRECTION_PERIOD_NS / 50).unwrap();
        let counter = Counter::new(calibration, reference.system);
        let mut last = 0;
        while !fell_back(&counter) {
            let time = counter.at(ticks::now());
            assert!(time >= last);
            last = time;
            assert!(
                reference.system.nanos() < 60 * CORRECTION_PERIOD_NS,
                "the wrong rate was not detected"
            );
        }
        assert!(counter.at(ticks::now()) >= last, "time does not go back");
        counter.floor.store(0, Ordering::Relaxed);
        let before = reference.system.nanos();
        assert!(counter.at(0) >= before, "the operating system's clock is used from here on");
    }

    #[test]
    fn counter_far_behind_its_anchor_falls_back_at_once() {
        let Some(reference) = counter(CORRECTION_PERIOD_NS) else { return };
        let far = ticks::now() + reference.validity.due * 1_000;
        let first = Anchor { ticks: far, ns: 0 };
        let second = Anchor { ticks: far + reference.validity.due, ns: CORRECTION_PERIOD_NS };
        let counter = Counter::new(
            Calibration::new(first, second, CORRECTION_PERIOD_NS).unwrap(),
            reference.system,
        );
        assert!(counter.at(ticks::now()) >= CORRECTION_PERIOD_NS, "time does not go back");
        assert!(fell_back(&counter));
    }

    #[test]
    fn sample_in_which_the_counter_goes_back_is_ignored() {
        let best =
            tightest([(100, 1, 180), (200, 2, 190), (300, 3, 340), (400, 4, 460)].into_iter());
        assert_eq!(best, Ok(Anchor { ticks: 320, ns: 3 }));
        assert_eq!(tightest([(200, 2, 190)].into_iter()), Err(Unreliable));
    }

    #[test]
    fn readers_use_the_old_conversion_during_a_correction() {
        let Some(counter) = counter(CORRECTION_PERIOD_NS) else { return };
        let correcting = counter.calibration.lock().unwrap();
        let conversion = correcting.conversion();
        let due = conversion.ticks + counter.validity.due + 1;
        assert_eq!(counter.at(due), conversion.after(counter.validity.due + 1));
    }
}
