//! How ticks of a counter become nanoseconds, and how that is corrected as time goes by.
//!
//! Time is a function of the counter: straight lines, each with a start and a reach. A line begins
//! where the one before it ends, or later, never earlier; so whoever reads more ticks reads no
//! earlier time, whichever line either of them went by. If the operating system is found to be
//! ahead, the next line begins with a jump forward; if it is behind, the next line is flatter
//! until they meet.
//!
//! All of this is arithmetic on numbers that are passed in. It reads neither counter nor clock.

/// Fractional bits of the nanoseconds that a tick takes.
const FRACTION: u32 = 32;
/// Rates that are believed at first: 50 MHz to 50 GHz.
const SLOWEST: u64 = 20 << FRACTION;
const FASTEST: u64 = (1 << FRACTION) / 50;
/// Two measured rates that differ by more than one part in this are not of one steady counter.
/// The operating system may slew its clock by 0.05 %, and a first measurement takes milliseconds.
const AGREEMENT: u64 = 256;
/// Measurements in a row that may be off. One is: the computer may have been asleep.
const STRIKES: u32 = 2;
/// A counter this many ticks behind was read on another core; further behind, it was set back.
const SKEW: u64 = 1 << 20;

/// The counter is not what the processor promised; the reason does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Distrust;

/// Counter and operating system, read at the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) ticks: u64,
    pub(super) ns: u64,
}

/// Nanoseconds as a function of ticks, from `ticks` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) ticks: u64,
    pub(super) ns: u64,
    /// Nanoseconds of a tick, in fixed point.
    pub(super) slope: u64,
}

impl Line {
    /// The time, so many ticks after the start of the line. These are bounded by its reach, so
    /// nothing is lost but in the year 2600.
    #[inline]
    pub(super) const fn after(&self, ticks: u64) -> u64 {
        self.ns.wrapping_add(span(ticks, self.slope))
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a reach takes seconds")]
const fn span(ticks: u64, slope: u64) -> u64 {
    ((ticks as u128 * slope as u128) >> FRACTION) as u64
}

/// How far a line goes, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// From here on the next line is due.
    pub(super) due: u64,
    /// Here it ends, a little later.
    pub(super) end: u64,
}

/// The line in force, and what the next one is computed from.
#[derive(Clone, Debug)]
pub(super) struct Calibration {
    line: Line,
    reach: Reach,
    anchor: Anchor,
    /// The last measured nanoseconds of a tick that were believed.
    rate: u64,
    strikes: u32,
}

impl Calibration {
    /// A calibration through two anchors some milliseconds apart, corrected every `period` nanoseconds.
    pub(super) fn new(first: Anchor, second: Anchor, period: u64) -> Result<Self, Distrust> {
        let rate = rate(first, second).filter(|rate| (FASTEST..=SLOWEST).contains(rate));
        let rate = rate.ok_or(Distrust)?;
        let due = (u128::from(period) << FRACTION) / u128::from(rate);
        let due = u64::try_from(due).map_err(|_| Distrust)?;
        let reach = Reach { due, end: due + due / 256 };
        let line = Line { ticks: second.ticks, ns: second.ns, slope: rate };
        Ok(Self { line, reach, anchor: second, rate, strikes: 0 })
    }

    pub(super) const fn line(&self) -> Line {
        self.line
    }

    pub(super) const fn reach(&self) -> Reach {
        self.reach
    }

    /// The furthest that anybody can have read.
    pub(super) const fn end(&self) -> u64 {
        self.line.after(self.reach.end)
    }

    /// The next line, if it is due by what was just read.
    ///
    /// If the line in force has not ended, the next one begins at its end: readers who have not
    /// heard of it go by the old one until then, and are right. Else nobody reads until there is
    /// a new one, and it begins at once.
    pub(super) fn renew(&mut self, seen: Anchor) -> Result<Option<Line>, Distrust> {
        if seen.ticks < self.anchor.ticks {
            let behind = self.anchor.ticks - seen.ticks;
            return if behind > SKEW { Err(Distrust) } else { Ok(None) };
        }
        let Some(gone) = seen.ticks.checked_sub(self.line.ticks) else { return Ok(None) };
        if gone < self.reach.due {
            return Ok(None);
        }
        self.measure(seen)?;
        let ahead = self.reach.end.saturating_sub(gone);
        let start = Anchor {
            ticks: seen.ticks.checked_add(ahead).ok_or(Distrust)?,
            ns: seen.ns.saturating_add(span(ahead, self.rate)),
        };
        let ns = self.end().max(start.ns);
        self.line = Line { ticks: start.ticks, ns, slope: self.slope(ns - start.ns) };
        self.anchor = seen;
        Ok(Some(self.line))
    }

    /// Believes the rate since the last anchor if it is near that of before.
    fn measure(&mut self, seen: Anchor) -> Result<(), Distrust> {
        match rate(self.anchor, seen) {
            Some(rate) if rate.abs_diff(self.rate) <= self.rate / AGREEMENT => {
                (self.rate, self.strikes) = (rate, 0);
            }
            _ => self.strikes += 1,
        }
        if self.strikes < STRIKES { Ok(()) } else { Err(Distrust) }
    }

    /// The slope of a line that begins so many nanoseconds too late: it meets the right time at
    /// its end, but time goes at half its pace at least.
    fn slope(&self, ahead: u64) -> u64 {
        let whole = span(self.reach.end, self.rate);
        let wanted = u128::from(whole.saturating_sub(ahead)) << FRACTION;
        let wanted = u64::try_from(wanted / u128::from(self.reach.end)).unwrap_or(self.rate);
        if ahead == 0 { self.rate } else { wanted.clamp(self.rate / 2, self.rate) }
    }
}

/// Nanoseconds of a tick between two anchors; `None` if no time went by on either.
fn rate(first: Anchor, second: Anchor) -> Option<u64> {
    let ticks = second.ticks.checked_sub(first.ticks)?;
    let ns = u128::from(second.ns.checked_sub(first.ns)?) << FRACTION;
    u64::try_from(ns.checked_div(ticks.into())?).ok().filter(|&rate| rate > 0)
}

#[cfg(test)]
mod tests {
    use super::super::seqlock::{Found, SeqLock};
    use super::*;

    const MILLI: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MILLI;

    /// A machine with a counter of 2.4 GHz, and somebody who reads its clock.
    struct Machine {
        seen: Anchor,
        calibration: Calibration,
        lines: SeqLock,
        last: u64,
        trusted: bool,
    }

    impl Machine {
        fn new() -> Self {
            let first = Anchor { ticks: 7 << 40, ns: 5 };
            let second = Anchor { ticks: first.ticks + 4_800_000, ns: first.ns + 2 * MILLI };
            let calibration = Calibration::new(first, second, SECOND).unwrap();
            let lines = SeqLock::new(calibration.line(), calibration.reach());
            Self { seen: second, calibration, lines, last: 0, trusted: true }
        }

        /// So many nanoseconds by the operating system, in which the counter is off by `ppm`.
        fn pass(&mut self, ns: u64, ppm: i64) {
            let rate = u128::try_from(2_400_000 + 24 * ppm / 10).unwrap();
            let ticks = u128::from(ns) * rate / 1_000_000;
            self.jump(ns, ticks.try_into().unwrap());
        }

        fn jump(&mut self, ns: u64, ticks: u64) {
            self.seen = Anchor { ticks: self.seen.ticks + ticks, ns: self.seen.ns + ns };
        }

        /// What the clock says, as `Counter` does it; and never less than before.
        fn read(&mut self) -> u64 {
            for _ in 0..3 {
                let found = match self.lines.at(self.seen.ticks) {
                    Some(time) => Found::At(time),
                    None => self.lines.find(self.seen.ticks, self.calibration.reach()),
                };
                let time = match found {
                    Found::At(time) => Some(time),
                    Found::Due(time) => {
                        self.renew();
                        Some(time)
                    }
                    Found::Nowhere => {
                        self.renew();
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
            panic!("no line holds {:?}: {:?}", self.seen, self.calibration);
        }

        fn renew(&mut self) {
            match self.calibration.renew(self.seen) {
                Ok(Some(line)) => self.lines.publish(line),
                Ok(None) => {}
                Err(Distrust) => self.trusted = false,
            }
        }

        /// How far the clock is from the operating system's.
        fn off(&mut self) -> u64 {
            let time = self.read();
            time.abs_diff(self.seen.ns)
        }
    }

    #[test]
    fn a_steady_counter_stays_with_the_operating_system() {
        let mut machine = Machine::new();
        for _ in 0..100_000 {
            machine.pass(MILLI, 0);
            assert!(machine.off() < 100, "{}", machine.off());
        }
        assert!(machine.trusted);
    }

    #[test]
    fn a_counter_that_drifts_is_corrected_every_second() {
        for ppm in [-500, -50, 50, 500] {
            let mut machine = Machine::new();
            for step in 0..20_000 {
                machine.pass(MILLI / 2, ppm);
                let off = machine.off();
                // 500 ppm of the first second, for which the measurement was of another rate.
                let bound = if step < 4_100 { 505_000 } else { 1_000 };
                assert!(off < bound, "{off} ns off by {ppm} ppm at step {step}");
            }
            assert!(machine.trusted);
        }
    }

    #[test]
    fn drift_that_comes_and_goes_neither_adds_up_nor_sets_time_back() {
        let mut machine = Machine::new();
        for step in 0..200_000_i64 {
            let ppm = if step / 1_700 % 2 == 0 { 500 } else { -500 };
            machine.pass(MILLI + u64::try_from(step).unwrap() % 977, ppm);
            assert!(machine.off() < 2_000_000, "{} at step {step}", machine.off());
        }
        assert!(machine.trusted);
    }

    #[test]
    fn a_line_that_is_ahead_is_flatter_until_it_meets_and_not_set_back() {
        let mut machine = Machine::new();
        machine.pass(900 * MILLI, 400);
        machine.read();
        machine.pass(101 * MILLI, 400);
        let before = machine.read();
        assert!(before > machine.seen.ns, "ahead of the operating system");
        let slow = machine.calibration.line().slope;
        assert!(slow < machine.calibration.rate, "so it is slowed");
        assert!(slow > machine.calibration.rate / 2);
    }

    #[test]
    fn readers_of_the_old_line_and_of_the_new_one_agree_on_every_tick() {
        let mut machine = Machine::new();
        machine.pass(1_001 * MILLI, 300);
        let old = machine.calibration.line();
        machine.read();
        let (new, reach) = (machine.calibration.line(), machine.calibration.reach());
        assert_eq!(new.ticks, old.ticks + reach.end, "it begins where the old one ends");
        assert_eq!(machine.lines.find(new.ticks, reach), Found::At(new.ns));
        let last = new.ticks - 1;
        assert_eq!(machine.lines.find(last, reach), Found::At(old.after(reach.end - 1)));
        assert!(new.ns >= old.after(reach.end));
    }

    #[test]
    fn a_sleep_that_the_operating_system_does_not_count_is_not_counted() {
        let mut machine = Machine::new();
        machine.pass(300 * MILLI, 0);
        machine.read();
        machine.jump(MILLI, 3_600 * 2_400_000_000);
        machine.read();
        for _ in 0..5_000 {
            machine.pass(MILLI, 0);
            machine.read();
        }
        assert!(machine.trusted, "one night is forgiven");
        assert!(machine.off() < 1_000, "{}", machine.off());
    }

    #[test]
    fn a_sleep_that_the_counter_does_not_count_is_made_up_for_at_once() {
        let mut machine = Machine::new();
        machine.pass(300 * MILLI, 0);
        machine.read();
        machine.jump(3_600 * SECOND, 2_400_000);
        // The line in force knows nothing of it; the next one does.
        machine.pass(SECOND, 0);
        machine.read();
        machine.pass(SECOND, 0);
        assert!(machine.off() < 1_000, "{}", machine.off());
        assert!(machine.trusted);
    }

    #[test]
    fn years_without_a_reading_are_no_trouble() {
        let mut machine = Machine::new();
        for _ in 0..3 {
            machine.pass(400 * 86_400 * SECOND, 20);
            assert_eq!(machine.off(), 0);
        }
        assert!(machine.trusted);
    }

    #[test]
    fn a_counter_that_runs_at_another_rate_is_given_up() {
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
    fn a_counter_that_was_set_back_is_given_up_and_time_is_not() {
        let mut machine = Machine::new();
        machine.pass(500 * MILLI, 0);
        let before = machine.read();
        machine.seen.ticks = 12;
        assert!(machine.read() >= before);
        assert!(!machine.trusted);
    }

    #[test]
    fn another_core_that_is_a_little_behind_is_forgiven() {
        let mut machine = Machine::new();
        machine.pass(5 * SECOND, 0);
        machine.read();
        machine.seen.ticks -= SKEW;
        assert_eq!(machine.calibration.renew(machine.seen), Ok(None));
        machine.seen.ticks -= 1;
        assert_eq!(machine.calibration.renew(machine.seen), Err(Distrust));
    }

    #[test]
    fn a_counter_that_stands_still_or_races_is_not_begun_with() {
        let first = Anchor { ticks: 100, ns: 100 };
        for ticks in [0, 100, 101, 10_000_000_000] {
            let second = Anchor { ticks, ns: 2 * MILLI + 100 };
            assert!(Calibration::new(first, second, SECOND).is_err(), "{ticks}");
        }
        assert!(Calibration::new(first, Anchor { ticks: 9_000, ns: 100 }, SECOND).is_err());
    }
}
