//! The clock of the processor: its time stamp counter, kept in step with the operating system.
//!
//! There is one for the process, measured when the first clock is made of it; a [`CounterClock`]
//! is that one and an origin. A reading is the counter, a multiplication and an addition by a line
//! that is corrected every second by whoever reads then (`calibration.rs` has the arithmetic, `seqlock.rs`
//! how it is shared). There is no thread, and no reader writes anything but that one, once a
//! second.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, TryLockError};

use tidegate_core::{Time, WallTime};

use super::calibration::{Anchor, Calibration, Unreliable, Validity};
use super::seqlock::{Reading, SeqLock};
use super::{Clock, ClockSource, SystemClock, ticks, wall_now};

/// How long the first measurement takes, once in a process, in nanoseconds.
const CALIBRATION_NS: u64 = 2_000_000;
/// How often the clock is corrected, in nanoseconds.
const CORRECTION_PERIOD_NS: u64 = 1_000_000_000;
/// Readings of which the tightest counts.
const SAMPLES: u32 = 8;
/// Where Linux tells which counter its own clock goes by.
#[cfg(target_os = "linux")]
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Why there is no [`CounterClock`] here. The clock of the operating system is there always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoCounter {
    /// The processor has no time stamp counter, or does not promise that it goes on at one rate.
    #[error("the processor has no invariant time stamp counter")]
    NotInvariant,
    /// The operating system goes by another clock, or does not tell by which.
    #[error("the operating system does not use the time stamp counter as its clock")]
    NotTrusted,
    /// The counter and the operating system do not agree.
    #[error("the time stamp counter disagrees with the operating system's clock")]
    Disagrees,
}

/// The time stamp counter of the processor, as a clock that counts from its creation.
///
/// It keeps to the operating system's monotonic clock: from the first correction on, a second
/// after the first one was made, they differ by some microseconds at most, unless the operating
/// system corrects its own. It never runs backwards, neither between threads nor when it is
/// corrected. If the counter turns out to be unsteady after all, this becomes the operating
/// system's clock for good; it may stand still for a second then, but is not set back. The same
/// happens if the operating system slews its own clock by more than 0.4 % for some seconds, as it
/// may be told to after a large step: the two cannot be told apart. Decisions are as right as
/// before then, and somewhat dearer. [`is_given_up`](Self::is_given_up) tells.
///
/// ```
/// use tidegate_memory::clock::{Clock, CounterClock};
/// match CounterClock::new() {
///     Ok(clock) => assert!(clock.now() <= clock.now_after()),
///     Err(reason) => println!("using the system clock: {reason}"),
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CounterClock {
    counter: &'static Counter,
    origin: u64,
}

impl CounterClock {
    /// A clock that starts now. The first one in a process takes some 2 ms to make.
    ///
    /// # Errors
    /// When there is no counter that can be trusted.
    pub fn new() -> Result<Self, NoCounter> {
        static COUNTER: OnceLock<Result<Counter, NoCounter>> = OnceLock::new();
        let counter = COUNTER
            .get_or_init(|| Counter::calibrate(CORRECTION_PERIOD_NS))
            .as_ref()
            .map_err(|&reason| reason)?;
        Ok(Self { counter, origin: counter.at(ticks::now_ordered()) })
    }

    /// The time, read after everything that stands ahead of this call. A processor may run
    /// [`now`](Clock::now) a little earlier; this one is for readings under a lock, which are then
    /// not before any that was made under the same lock earlier.
    #[must_use]
    #[inline]
    pub fn now_after(&self) -> Time {
        self.since_origin(ticks::now_ordered())
    }

    /// Whether the counter was given up in this process, and this is the operating system's clock.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
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

/// The counter of this process, in nanoseconds.
#[derive(Debug)]
struct Counter {
    conversions: SeqLock,
    validity: Validity,
    calibration: Mutex<Calibration>,
    system: SystemClock,
    /// Whether the counter was given up, and the time that had been told until then.
    fell_back: AtomicBool,
    floor: AtomicU64,
}

/// Who saw to the next line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recalibration {
    /// This thread, if it was due.
    Done,
    /// Another one, which is at it now.
    InProgress,
}

impl Counter {
    fn calibrate(period: u64) -> Result<Self, NoCounter> {
        if !ticks::is_invariant() {
            return Err(NoCounter::NotInvariant);
        }
        if !is_trusted() {
            return Err(NoCounter::NotTrusted);
        }
        let system = SystemClock::new();
        let disagrees = |Unreliable| NoCounter::Disagrees;
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

    /// The time at which the counter stood at `ticks`, which were read just now.
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
                    // If somebody else is at it, the old line will do.
                    self.recalibrate();
                    return time;
                }
                // The clock was not read for a while, or this thread was held up after it read
                // the counter. Somebody makes a new line, and all who come meanwhile read again.
                Reading::Unknown => {
                    if self.recalibrate() == Recalibration::InProgress {
                        std::thread::yield_now();
                    }
                }
            }
            ticks = ticks::now_ordered();
        }
    }

    /// Corrects the clock if that is due, unless somebody else is at it.
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

    /// From now on the clock of the operating system, but nothing before `floor`.
    fn fall_back(&self, floor: u64) {
        self.floor.fetch_max(floor, Ordering::Relaxed);
        self.conversions.close();
        // Whoever sees this also sees that there are no more lines to go by.
        self.fell_back.store(true, Ordering::Release);
    }
}

/// Counter and operating system at one instant: the tightest of a few readings, since this thread
/// may be interrupted between the two.
fn anchor(system: &SystemClock) -> Result<Anchor, Unreliable> {
    let readings =
        (0..SAMPLES).map(|_| (ticks::now_ordered(), system.nanos(), ticks::now_ordered()));
    tightest(readings)
}

/// The best of some readings of the counter, the operating system, and the counter again. Those in
/// which the counter went back are of a thread that came to another core between the two, and are
/// passed over: they would seem to be the tightest. If all are, the counter is of no use.
fn tightest(readings: impl Iterator<Item = (u64, u64, u64)>) -> Result<Anchor, Unreliable> {
    let widths = readings.filter_map(|(before, ns, after)| {
        let width = after.checked_sub(before)?;
        Some((width, Anchor { ticks: before + width / 2, ns }))
    });
    widths.min_by_key(|(width, _)| *width).map(|(_, anchor)| anchor).ok_or(Unreliable)
}

/// Whether the operating system goes by the counter itself: it watches it better than we can.
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

    /// A counter of a test's own. On a machine without one there is nothing to test here.
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
        assert!(conversion.ns > until / 2, "it was corrected on the way: {conversion:?}");
    }

    #[test]
    fn counter_and_system_clock_agree() {
        let Some(counter) = counter(CORRECTION_PERIOD_NS) else { return };
        for _ in 0..1_000 {
            let before = counter.system.nanos();
            let time = counter.at(ticks::now_ordered());
            let after = counter.system.nanos();
            // Some 100 ppm of the few milliseconds since the first measurement, and then some.
            let slack = CORRECTION_PERIOD_NS / 1_000;
            assert!(time + slack > before && time < after + slack, "{before} {time} {after}");
        }
    }

    #[test]
    fn counter_with_a_wrong_rate_falls_back_without_moving_time_backwards() {
        let Some(honest) = counter(CORRECTION_PERIOD_NS) else { return };
        let first = anchor(&honest.system).unwrap();
        // Three times as fast as it is, and asked about it every 20 ms.
        let second = Anchor {
            ticks: first.ticks + honest.validity.due,
            ns: first.ns + 3 * CORRECTION_PERIOD_NS,
        };
        let calibration = Calibration::new(first, second, CORRECTION_PERIOD_NS / 50).unwrap();
        let counter = Counter::new(calibration, honest.system);
        let mut last = 0;
        while !fell_back(&counter) {
            let time = counter.at(ticks::now());
            assert!(time >= last);
            last = time;
            assert!(honest.system.nanos() < 60 * CORRECTION_PERIOD_NS, "nobody noticed");
        }
        assert!(counter.at(ticks::now()) >= last, "nothing is taken back");
        counter.floor.store(0, Ordering::Relaxed);
        let before = honest.system.nanos();
        assert!(counter.at(0) >= before, "and from here on the operating system counts");
    }

    #[test]
    fn counter_far_behind_its_anchor_falls_back_at_once() {
        let Some(honest) = counter(CORRECTION_PERIOD_NS) else { return };
        let far = ticks::now() + honest.validity.due * 1_000;
        let first = Anchor { ticks: far, ns: 0 };
        let second = Anchor { ticks: far + honest.validity.due, ns: CORRECTION_PERIOD_NS };
        let counter = Counter::new(
            Calibration::new(first, second, CORRECTION_PERIOD_NS).unwrap(),
            honest.system,
        );
        assert!(counter.at(ticks::now()) >= CORRECTION_PERIOD_NS, "what was told stays told");
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
