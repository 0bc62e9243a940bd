//! Converting ticks of the counter to nanoseconds, and correcting the conversion over time.
//!
//! Time is a piecewise linear function of the counter. Each piece is a [`Conversion`], valid for a
//! limited number of ticks. A conversion starts at the end of the previous one or later, never
//! earlier, so a reading of more ticks is never an earlier time, whichever conversions were used.
//! If the operating system's clock is ahead, the next conversion starts with a jump forward. If it
//! is behind, the next conversion is slower until both agree.
//!
//! This is pure arithmetic on numbers that are passed in. It reads neither the counter nor a clock.

/// Fractional bits in nanoseconds per tick.
const FRACTION: u32 = 32;
/// Range of plausible rates at the start, in nanoseconds per tick: 50 MHz to 50 GHz.
const MAX_NS_PER_TICK: u64 = 20 << FRACTION;
const MIN_NS_PER_TICK: u64 = (1 << FRACTION) / 50;
/// Two measured rates that differ by more than one part in this many do not come from one steady
/// counter. The operating system may slew its clock by 0.05 %, and the first measurement takes only
/// milliseconds.
const MAX_RATE_CHANGE: u64 = 256;
/// Number of consecutive bad measurements after which the counter is unreliable. A single one may
/// be due to a suspend.
const UNRELIABLE_AFTER: u32 = 2;
/// A counter up to this many ticks behind was read on another core; further behind, it was set
/// back.
const MAX_SKEW: u64 = 1 << 20;

/// The counter is not as steady as the processor promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreliable;

/// The counter and the operating system's clock, read at the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) ticks: u64,
    pub(super) ns: u64,
}

/// Linear conversion of ticks to nanoseconds, starting at `ticks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conversion {
    pub(super) ticks: u64,
    pub(super) ns: u64,
    /// Nanoseconds per tick, in fixed point.
    pub(super) slope: u64,
}

impl Conversion {
    /// Returns the time `ticks` after the start. Validity bounds the ticks, so nothing overflows
    /// before the year 2600.
    #[inline]
    pub(super) const fn after(&self, ticks: u64) -> u64 {
        self.ns.wrapping_add(ticks_to_ns(ticks, self.slope))
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a conversion is valid for seconds")]
const fn ticks_to_ns(ticks: u64, slope: u64) -> u64 {
    ((ticks as u128 * slope as u128) >> FRACTION) as u64
}

/// How long a conversion is valid, in ticks from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    /// The next conversion is due from here on.
    pub(super) due: u64,
    /// The conversion ends here, slightly later.
    pub(super) end: u64,
}

/// The current conversion, and what is needed to compute the next one.
#[derive(Clone, Debug)]
pub(super) struct Calibration {
    conversion: Conversion,
    validity: Validity,
    anchor: Anchor,
    /// Nanoseconds per tick, as last measured and accepted.
    rate: u64,
    bad_measurements: u32,
}

impl Calibration {
    /// Calibrates with two anchors a few milliseconds apart, to be corrected every `period`
    /// nanoseconds.
    pub(super) fn new(first: Anchor, second: Anchor, period: u64) -> Result<Self, Unreliable> {
        let rate =
            rate(first, second).filter(|rate| (MIN_NS_PER_TICK..=MAX_NS_PER_TICK).contains(rate));
        let rate = rate.ok_or(Unreliable)?;
        let due = (u128::from(period) << FRACTION) / u128::from(rate);
        let due = u64::try_from(due).map_err(|_| Unreliable)?;
        let validity = Validity { due, end: due + due / 256 };
        let conversion = Conversion { ticks: second.ticks, ns: second.ns, slope: rate };
        Ok(Self { conversion, validity, anchor: second, rate, bad_measurements: 0 })
    }

    pub(super) const fn conversion(&self) -> Conversion {
        self.conversion
    }

    pub(super) const fn validity(&self) -> Validity {
        self.validity
    }

    /// Returns the latest time that any thread can have read.
    pub(super) const fn end(&self) -> u64 {
        self.conversion.after(self.validity.end)
    }

    /// Returns the next conversion, if it is due at the given anchor.
    ///
    /// If the current conversion has not ended, the next one starts at its end: threads that have
    /// not seen it yet use the old one until then, which is correct. If it has ended, no thread
    /// gets a time until there is a new one, which starts at once.
    pub(super) fn recalibrate(&mut self, seen: Anchor) -> Result<Option<Conversion>, Unreliable> {
        if seen.ticks < self.anchor.ticks {
            let behind = self.anchor.ticks - seen.ticks;
            return if behind > MAX_SKEW { Err(Unreliable) } else { Ok(None) };
        }
        let Some(elapsed) = seen.ticks.checked_sub(self.conversion.ticks) else { return Ok(None) };
        if elapsed < self.validity.due {
            return Ok(None);
        }
        self.measure(seen)?;
        let ahead = self.validity.end.saturating_sub(elapsed);
        let start = Anchor {
            ticks: seen.ticks.checked_add(ahead).ok_or(Unreliable)?,
            ns: seen.ns.saturating_add(ticks_to_ns(ahead, self.rate)),
        };
        let ns = self.end().max(start.ns);
        self.conversion = Conversion { ticks: start.ticks, ns, slope: self.slope(ns - start.ns) };
        self.anchor = seen;
        Ok(Some(self.conversion))
    }

    /// Accepts the rate since the last anchor if it is close to the previous rate.
    fn measure(&mut self, seen: Anchor) -> Result<(), Unreliable> {
        match rate(self.anchor, seen) {
            Some(rate) if rate.abs_diff(self.rate) <= self.rate / MAX_RATE_CHANGE => {
                (self.rate, self.bad_measurements) = (rate, 0);
            }
            _ => self.bad_measurements += 1,
        }
        if self.bad_measurements < UNRELIABLE_AFTER { Ok(()) } else { Err(Unreliable) }
    }

    /// Returns the slope of a conversion that starts `ahead` nanoseconds too late: it reaches the
    /// correct time at its end, but time never runs at less than half its rate.
    fn slope(&self, ahead: u64) -> u64 {
        let elapsed_ns = ticks_to_ns(self.validity.end, self.rate);
        let wanted = u128::from(elapsed_ns.saturating_sub(ahead)) << FRACTION;
        let wanted = u64::try_from(wanted / u128::from(self.validity.end)).unwrap_or(self.rate);
        if ahead == 0 { self.rate } else { wanted.clamp(self.rate / 2, self.rate) }
    }
}

/// Returns nanoseconds per tick between two anchors; `None` if either did not advance.
fn rate(first: Anchor, second: Anchor) -> Option<u64> {
    let ticks = second.ticks.checked_sub(first.ticks)?;
    let ns = u128::from(second.ns.checked_sub(first.ns)?) << FRACTION;
    u64::try_from(ns.checked_div(ticks.into())?).ok().filter(|&rate| rate > 0)
}

#[cfg(test)]
mod tests {
    use super::super::seqlock::{Reading, SeqLock};
    use super::*;

    const MILLI: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MILLI;

    /// A simulated machine with a 2.4 GHz counter, and a reader of its clock.
    struct Machine {
        seen: Anchor,
        calibration: Calibration,
        conversions: SeqLock,
        last: u64,
        trusted: bool,
    }

    impl Machine {
        fn new() -> Self {
            let first = Anchor { ticks: 7 << 40, ns: 5 };
            let second = Anchor { ticks: first.ticks + 4_800_000, ns: first.ns + 2 * MILLI };
            let calibration = Calibration::new(first, second, SECOND).unwrap();
            let conversions = SeqLock::new(calibration.conversion(), calibration.validity());
            Self { seen: second, calibration, conversions, last: 0, trusted: true }
        }

        /// Advances the operating system's clock by `ns`, with the counter off by `ppm`.
        fn pass(&mut self, ns: u64, ppm: i64) {
            let rate = u128::try_from(2_400_000 + 24 * ppm / 10).unwrap();
            let ticks = u128::from(ns) * rate / 1_000_000;
            self.jump(ns, ticks.try_into().unwrap());
        }

        fn jump(&mut self, ns: u64, ticks: u64) {
            self.seen = Anchor { ticks: self.seen.ticks + ticks, ns: self.seen.ns + ns };
        }

        /// Reads the clock like `Counter` does, and asserts that it does not go back.
        fn read(&mut self) -> u64 {
            for _ in 0..3 {
                let found = match self.conversions.at(self.seen.ticks) {
                    Some(time) => Reading::Valid(time),
                    None => self.conversions.find(self.seen.ticks, self.calibration.validity()),
                };
                let time = match found {
                    Reading::Valid(time) => Some(time),
                    Reading::Due(time) => {
                        self.recalibrate();
                        Some(time)
                    }
                    Reading::Unknown => {
                        self.recalibrate();
                        None
                    }
                };
                if !self.trusted {
                    return self.calibration.end().max(self.seen.ns);
                }
                if let Some(time) = time {
                    assert!(time >= self.last, "{time} after {}", self.last);
                    self.last = time;
                    return time;
                }
            }
            panic!("no conversion covers {:?}: {:?}", self.seen, self.calibration);
        }

        fn recalibrate(&mut self) {
            match self.calibration.recalibrate(self.seen) {
                Ok(Some(conversion)) => self.conversions.publish(conversion),
                Ok(None) => {}
                Err(Unreliable) => self.trusted = false,
            }
        }

        /// Returns the difference to the operating system's clock.
        fn off(&mut self) -> u64 {
            let time = self.read();
            time.abs_diff(self.seen.ns)
        }
    }

    #[test]
    fn steady_counter_follows_the_operating_system() {
        let mut machine = Machine::new();
        for _ in 0..100_000 {
            machine.pass(MILLI, 0);
            assert!(machine.off() < 100, "{}", machine.off());
        }
        assert!(machine.trusted);
    }

    #[test]
    fn drifting_counter_is_corrected_every_second() {
        for ppm in [-500, -50, 50, 500] {
            let mut machine = Machine::new();
            for step in 0..20_000 {
                machine.pass(MILLI / 2, ppm);
                let off = machine.off();
                // The first second was measured at another rate: 500 ppm of it.
                let bound = if step < 4_100 { 505_000 } else { 1_000 };
                assert!(off < bound, "{off} ns off by {ppm} ppm at step {step}");
            }
            assert!(machine.trusted);
        }
    }

    #[test]
    fn alternating_drift_neither_accumulates_nor_moves_time_backwards() {
        let mut machine = Machine::new();
        for step in 0..200_000_i64 {
            let ppm = if step / 1_700 % 2 == 0 { 500 } else { -500 };
            machine.pass(MILLI + u64::try_from(step).unwrap() % 977, ppm);
            assert!(machine.off() < 2_000_000, "{} at step {step}", machine.off());
        }
        assert!(machine.trusted);
    }

    #[test]
    fn clock_that_is_ahead_is_slowed_down_not_set_back() {
        let mut machine = Machine::new();
        machine.pass(900 * MILLI, 400);
        machine.read();
        machine.pass(101 * MILLI, 400);
        let before = machine.read();
        assert!(before > machine.seen.ns, "ahead of the operating system");
        let slow = machine.calibration.conversion().slope;
        assert!(slow < machine.calibration.rate, "the next conversion is slower");
        assert!(slow > machine.calibration.rate / 2);
    }

    #[test]
    fn old_and_new_conversion_agree_on_every_tick() {
        let mut machine = Machine::new();
        machine.pass(1_001 * MILLI, 300);
        let old = machine.calibration.conversion();
        machine.read();
        let (new, validity) = (machine.calibration.conversion(), machine.calibration.validity());
        assert_eq!(new.ticks, old.ticks + validity.end, "it starts where the old one ends");
        assert_eq!(machine.conversions.find(new.ticks, validity), Reading::Valid(new.ns));
        let last = new.ticks - 1;
        assert_eq!(
            machine.conversions.find(last, validity),
            Reading::Valid(old.after(validity.end - 1))
        );
        assert!(new.ns >= old.after(validity.end));
    }

    #[test]
    fn suspend_ignored_by_the_operating_system_is_ignored() {
        let mut machine = Machine::new();
        machine.pass(300 * MILLI, 0);
        machine.read();
        machine.jump(MILLI, 3_600 * 2_400_000_000);
        machine.read();
        for _ in 0..5_000 {
            machine.pass(MILLI, 0);
            machine.read();
        }
        assert!(machine.trusted, "one bad measurement is tolerated");
        assert!(machine.off() < 1_000, "{}", machine.off());
    }

    #[test]
    fn suspend_missed_by_the_counter_is_caught_up_at_once() {
        let mut machine = Machine::new();
        machine.pass(300 * MILLI, 0);
        machine.read();
        machine.jump(3_600 * SECOND, 2_400_000);
        // The current conversion does not include it; the next one does.
        machine.pass(SECOND, 0);
        machine.read();
        machine.pass(SECOND, 0);
        assert!(machine.off() < 1_000, "{}", machine.off());
        assert!(machine.trusted);
    }

    #[test]
    fn years_without_a_reading_are_handled() {
        let mut machine = Machine::new();
        for _ in 0..3 {
            machine.pass(400 * 86_400 * SECOND, 20);
            assert_eq!(machine.off(), 0);
        }
        assert!(machine.trusted);
    }

    #[test]
    fn counter_at_another_rate_is_unreliable() {
        for ppm in [-200_000, -10_000, 10_000, 900_000] {
            let mut machine = Machine::new();
            for _ in 0..4_000 {
                machine.pass(MILLI, ppm);
                machine.read();
            }
            assert!(!machine.trusted, "{ppm} ppm");
            let ahead = machine.calibration.end().saturating_sub(machine.seen.ns);
            assert!(ahead < 2 * SECOND, "{ahead} ns to stand still at {ppm} ppm");
        }
    }

    #[test]
    fn counter_set_back_is_unreliable_and_time_does_not_go_back() {
        let mut machine = Machine::new();
        machine.pass(500 * MILLI, 0);
        let before = machine.read();
        machine.seen.ticks = 12;
        assert!(machine.read() >= before);
        assert!(!machine.trusted);
    }

    #[test]
    fn small_skew_between_cores_is_tolerated() {
        let mut machine = Machine::new();
        machine.pass(5 * SECOND, 0);
        machine.read();
        machine.seen.ticks -= MAX_SKEW;
        assert_eq!(machine.calibration.recalibrate(machine.seen), Ok(None));
        machine.seen.ticks -= 1;
        assert_eq!(machine.calibration.recalibrate(machine.seen), Err(Unreliable));
    }

    #[test]
    fn stopped_or_racing_counter_is_rejected_at_start() {
        let first = Anchor { ticks: 100, ns: 100 };
        for ticks in [0, 100, 101, 10_000_000_000] {
            let second = Anchor { ticks, ns: 2 * MILLI + 100 };
            assert!(Calibration::new(first, second, SECOND).is_err(), "{ticks}");
        }
        assert!(Calibration::new(first, Anchor { ticks: 9_000, ns: 100 }, SECOND).is_err());
    }
}
