//! The breaker of a store: whether the store is asked at all, who probes it, and when.
//!
//! The state machine is that of [`tidegate_core::breaker`]. Here is what a store needs around it: callers
//! pay one atomic load while the store is up and never serve as the probe, and one prober at a time
//! does. It reads no clock, knows no store and starts nothing, so all of it runs under any time that
//! it is given.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::Time;
pub(super) use tidegate_core::breaker::Epoch as Turn;
use tidegate_core::breaker::{BreakerSettings, CallOutcome, CircuitBreaker, Transition};
use tokio::time::Instant;

/// Failures in a row after which the store is taken to be down.
const TOLERATED: u32 = 3;
/// How long after that it is probed first.
const FIRST_PROBE: Duration = Duration::from_millis(100);
/// The longest time between two probes. A store that fails again sooner than this after it came
/// back only seemed to be back, and is probed more slowly than before.
const RAREST_PROBE: Duration = Duration::from_secs(5);
/// How late a probe may be before its prober is taken to be stuck, as in a runtime that nobody
/// runs any more.
const PATIENCE: Duration = Duration::from_secs(1);
/// The shortest wait that callers are told, so that nobody comes back before the probe has been
/// answered.
pub(super) const LEAST_HINT: Duration = Duration::from_millis(100);
/// No epoch has this number.
const DOWN: u64 = u64::MAX;

/// Which of the probers, one after the other, is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u64);

#[derive(Debug)]
pub(super) struct Breaker {
    /// The epoch in which the store is asked, or `DOWN`. A copy of what the machine says.
    epoch: AtomicU64,
    /// Whether the last call of the epoch failed. A copy, too.
    is_failing: AtomicBool,
    watch: Mutex<Watch>,
    /// The machine counts its times from here.
    origin: Instant,
}

#[derive(Debug)]
struct Watch {
    machine: CircuitBreaker,
    /// Who probes a store that is down.
    prober: Option<Number>,
    probers: u64,
    /// When a store that is up was probed last, because somebody in a hurry got no answer.
    doubted: Option<Instant>,
}

impl Default for Breaker {
    fn default() -> Self {
        let settings = BreakerSettings::after_failures(TOLERATED)
            .pause(FIRST_PROBE, RAREST_PROBE)
            .relapse_within(RAREST_PROBE);
        let machine = CircuitBreaker::new(settings);
        let epoch = AtomicU64::new(machine.closed().map_or(DOWN, Turn::number));
        let watch = Mutex::new(Watch { machine, prober: None, probers: 0, doubted: None });
        Self { epoch, is_failing: AtomicBool::new(false), watch, origin: Instant::now() }
    }
}

impl Breaker {
    /// Whether the store is asked.
    pub(super) fn is_up(&self) -> bool {
        self.begin().is_some()
    }

    /// The present epoch, if the store is to be asked in it.
    #[inline]
    pub(super) fn begin(&self) -> Option<Turn> {
        let number = self.epoch.load(Ordering::Acquire);
        (number != DOWN).then_some(Turn::from_number(number))
    }

    /// The store has answered.
    #[inline]
    pub(super) fn answered(&self) {
        if self.is_failing.load(Ordering::Relaxed) {
            let mut watch = self.lock();
            watch.machine.clear_failures();
            self.publish(&watch);
        }
    }

    /// The store has failed a call of `turn`. `true` if it is down from now on; `jitter` is any
    /// number, to spread the probes of many nodes.
    pub(super) fn failed(&self, turn: Turn, now: Instant, jitter: u64) -> bool {
        let now = self.time(now);
        self.change(|machine| machine.settle(turn, CallOutcome::Failed, now, jitter))
    }

    /// Whether a store that did not answer somebody in a hurry is to be probed: there may be many
    /// of them, and one probe of `timeout` is enough.
    pub(super) fn doubt(&self, turn: Turn, now: Instant, timeout: Duration) -> bool {
        let mut watch = self.lock();
        let pause = timeout.saturating_add(FIRST_PROBE);
        let just_now = |probed: Instant| now.saturating_duration_since(probed) < pause;
        if watch.machine.closed() != Some(turn) || watch.doubted.is_some_and(just_now) {
            return false;
        }
        watch.doubted = Some(now);
        true
    }

    /// That probe was not answered. `true` if the store is down from now on.
    pub(super) fn confirmed(&self, turn: Turn, now: Instant, jitter: u64) -> bool {
        let now = self.time(now);
        self.change(|machine| machine.trip(turn, now, jitter))
    }

    fn change(&self, change: impl FnOnce(&mut CircuitBreaker) -> Option<Transition>) -> bool {
        let mut watch = self.lock();
        let news = change(&mut watch.machine);
        if news.is_some() {
            watch.doubted = None;
        }
        self.publish(&watch);
        news.is_some()
    }

    /// A new prober, if the store is down and nobody probes it, or somebody who should have done
    /// so long ago; `timeout` is how long one probe takes at most.
    pub(super) fn enlist(&self, now: Instant, timeout: Duration) -> Option<Number> {
        let mut watch = self.lock();
        let due = watch.machine.due()?;
        let is_stuck = due.after(timeout.saturating_add(PATIENCE)) < self.time(now);
        if watch.prober.is_some() && !is_stuck {
            return None;
        }
        watch.probers += 1;
        watch.prober = Some(Number(watch.probers));
        watch.prober
    }

    /// When this prober is to probe; `None` if it is not wanted any more.
    pub(super) fn due(&self, prober: Number) -> Option<Instant> {
        let watch = self.lock();
        let due = if watch.prober == Some(prober) { watch.machine.due() } else { None };
        due.map(|due| self.origin + due.since(Time::ZERO))
    }

    /// A probe was not answered: the next one is later.
    pub(super) fn unanswered(&self, prober: Number, now: Instant, jitter: u64) {
        self.probed(prober, CallOutcome::Failed, now, jitter);
    }

    /// A probe was answered: the store is up. Says how long it was down, if this prober may say
    /// so. One answer is enough: it came within the time-out that callers grant, and a store that
    /// fails them again is soon found out.
    pub(super) fn recovered(&self, prober: Number, now: Instant) -> Option<Duration> {
        match self.probed(prober, CallOutcome::Answered, now, 0)? {
            Transition::Closed(down) => Some(down),
            Transition::Opened(_) => None,
        }
    }

    /// Ends a trial of the machine, which begins and ends here: only its outcome is of use.
    fn probed(
        &self,
        prober: Number,
        outcome: CallOutcome,
        now: Instant,
        jitter: u64,
    ) -> Option<Transition> {
        let mut watch = self.lock();
        if watch.prober != Some(prober) {
            return None;
        }
        let trial = watch.machine.trial()?;
        let news = watch.machine.settle(trial, outcome, self.time(now), jitter);
        if outcome == CallOutcome::Answered {
            watch.prober = None;
        }
        self.publish(&watch);
        news
    }

    /// A prober ends, whatever the reason; somebody else may take its place.
    pub(super) fn resigned(&self, prober: Number) {
        let mut watch = self.lock();
        if watch.prober == Some(prober) {
            watch.prober = None;
        }
    }

    /// How long until it is worth asking again.
    pub(super) fn hint(&self, now: Instant) -> Duration {
        let due = self.lock().machine.due();
        due.map_or(LEAST_HINT, |due| due.since(self.time(now)).max(LEAST_HINT))
    }

    /// Copies what callers read without the lock.
    fn publish(&self, watch: &Watch) {
        let number = watch.machine.closed().map_or(DOWN, Turn::number);
        self.is_failing.store(watch.machine.failures() != 0, Ordering::Relaxed);
        self.epoch.store(number, Ordering::Release);
    }

    fn time(&self, now: Instant) -> Time {
        Time::ZERO.after(now.saturating_duration_since(self.origin))
    }

    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const TIMEOUT: Duration = Duration::from_millis(50);

    fn fail(breaker: &Breaker, now: Instant) {
        for _ in 0..TOLERATED {
            breaker.failed(breaker.begin().unwrap(), now, 0);
        }
        assert!(!breaker.is_up());
    }

    #[test]
    fn only_failures_in_a_row_of_the_present_turn_count() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        let turn = breaker.begin().unwrap();
        for _ in 0..10 {
            assert!(!breaker.failed(turn, now, 0));
            assert!(!breaker.failed(turn, now, 0));
            breaker.answered();
        }
        fail(&breaker, now);
        let prober = breaker.enlist(now, TIMEOUT).unwrap();
        assert_eq!(breaker.recovered(prober, now + SECOND), Some(SECOND));
        for _ in 0..10 {
            assert!(!breaker.failed(turn, now, 0), "a call from before the store was down");
        }
        assert!(breaker.is_up());
    }

    /// Many in a hurry ask for one probe, and only its outcome counts.
    #[test]
    fn doubt_is_settled_by_one_probe() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        let turn = breaker.begin().unwrap();
        let doubt = |at| breaker.doubt(turn, at, TIMEOUT);
        let next = now + TIMEOUT + FIRST_PROBE;
        let before = next - Duration::from_nanos(1);
        assert_eq!([now, now, before, next, next].map(doubt), [true, false, false, true, false]);
        assert!(breaker.is_up());
        assert!(breaker.confirmed(turn, next, 0));
        assert!(!breaker.is_up());
        assert!(!breaker.confirmed(turn, next, 0), "known by now");
        assert!(!doubt(next + SECOND), "there is another probe");
        let prober = breaker.enlist(next, TIMEOUT).unwrap();
        breaker.recovered(prober, next).unwrap();
        assert!(!breaker.confirmed(turn, next, 0), "of an earlier turn");
        assert!(breaker.doubt(breaker.begin().unwrap(), next, TIMEOUT));
    }

    #[test]
    fn a_prober_is_replaced_when_it_ended_or_is_stuck() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        assert_eq!(breaker.enlist(now, TIMEOUT), None, "nothing to probe");
        fail(&breaker, now);
        let first = breaker.enlist(now, TIMEOUT).unwrap();
        assert_eq!(breaker.due(first), Some(now + FIRST_PROBE));
        assert_eq!(breaker.enlist(now + SECOND, TIMEOUT), None);
        breaker.resigned(first);
        let second = breaker.enlist(now + SECOND, TIMEOUT).unwrap();
        let third = breaker.enlist(now + SECOND * 2, TIMEOUT).unwrap();
        assert_eq!((breaker.due(first), breaker.due(second)), (None, None));
        breaker.resigned(second);
        assert_eq!(breaker.recovered(second, now + SECOND), None);
        assert_eq!(breaker.enlist(now + SECOND, TIMEOUT), None, "the third is there");
        assert_eq!(breaker.recovered(third, now + SECOND * 2), Some(SECOND * 2));
    }

    #[test]
    fn a_store_that_only_seemed_to_be_back_is_probed_more_slowly() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        fail(&breaker, now);
        let prober = breaker.enlist(now, TIMEOUT).unwrap();
        for _ in 0..3 {
            breaker.unanswered(prober, now, 0);
        }
        assert_eq!(breaker.hint(now), FIRST_PROBE * 8);
        breaker.recovered(prober, now).unwrap();
        assert_eq!(breaker.hint(now), LEAST_HINT);
        fail(&breaker, now + SECOND);
        assert_eq!(breaker.hint(now + SECOND), FIRST_PROBE * 16);
        let prober = breaker.enlist(now + SECOND, TIMEOUT).unwrap();
        breaker.recovered(prober, now + SECOND).unwrap();
        fail(&breaker, now + SECOND + RAREST_PROBE);
        assert_eq!(breaker.hint(now + SECOND + RAREST_PROBE), FIRST_PROBE);
    }
}
