//! The circuit breaker of a store: whether the store is called, and when it is probed.
//!
//! The state machine is [`tidegate_core::breaker`]. This module adds what a store needs: callers
//! pay one atomic load while the store is up and never serve as the probe; a single prober does. It
//! reads no clock, knows no store and spawns nothing, so all of it can be tested with made-up
//! times.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::Time;
pub(super) use tidegate_core::breaker::Epoch as Turn;
use tidegate_core::breaker::{BreakerSettings, CallOutcome, CircuitBreaker, Transition};
use tokio::time::Instant;

/// Consecutive failures after which the store counts as down.
const TOLERATED: u32 = 3;
/// Delay of the first probe after that.
const FIRST_PROBE: Duration = Duration::from_millis(100);
/// Longest interval between two probes. If a store fails again within this time after it came back,
/// the probe intervals continue to grow from where they were.
const RAREST_PROBE: Duration = Duration::from_secs(5);
/// How late a probe may be before its prober counts as stuck, for example in a runtime that is no
/// longer driven.
const PATIENCE: Duration = Duration::from_secs(1);
/// Shortest wait that callers are given, so that they do not come back before the probe has
/// finished.
pub(super) const LEAST_HINT: Duration = Duration::from_millis(100);
/// Stands for "down" in the published epoch. No epoch has this number.
const DOWN: u64 = u64::MAX;

/// Identifies one of the successive probers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u64);

#[derive(Debug)]
pub(super) struct Breaker {
    /// The epoch in which the store is called, or `DOWN`. A copy of the state machine's.
    epoch: AtomicU64,
    /// Whether the last call of the epoch failed. A copy of the state machine's.
    is_failing: AtomicBool,
    watch: Mutex<Watch>,
    /// Origin of the times in the state machine.
    origin: Instant,
}

#[derive(Debug)]
struct Watch {
    machine: CircuitBreaker,
    /// The prober of a store that is down.
    prober: Option<Number>,
    probers: u64,
    /// When a store that is up was last probed because a call with a short deadline got no answer.
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
    /// Whether the store is called.
    pub(super) fn is_up(&self) -> bool {
        self.begin().is_some()
    }

    /// The current epoch; `None` if the store is down.
    #[inline]
    pub(super) fn begin(&self) -> Option<Turn> {
        let number = self.epoch.load(Ordering::Acquire);
        (number != DOWN).then_some(Turn::from_number(number))
    }

    /// Records an answered call.
    #[inline]
    pub(super) fn answered(&self) {
        if self.is_failing.load(Ordering::Relaxed) {
            let mut watch = self.lock();
            watch.machine.clear_failures();
            self.publish(&watch);
        }
    }

    /// Records a failed call of `epoch`. Returns `true` if the store is down from now on. `jitter`
    /// is any number; it spreads the probes of many nodes.
    pub(super) fn failed(&self, turn: Turn, now: Instant, jitter: u64) -> bool {
        let now = self.time(now);
        self.change(|machine| machine.settle(turn, CallOutcome::Failed, now, jitter))
    }

    /// Whether to probe a store that did not answer a call with a short deadline. There may be many
    /// such calls, and one probe per `timeout` is enough.
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

    /// Records that this probe failed. Returns `true` if the store is down from now on.
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

    /// Registers a new prober if the store is down and has no prober, or only a stuck one.
    /// `timeout` is the longest time that one probe takes.
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

    /// Time of the next probe; `None` if this prober has been replaced or the store is up.
    pub(super) fn due(&self, prober: Number) -> Option<Instant> {
        let watch = self.lock();
        let due = if watch.prober == Some(prober) { watch.machine.due() } else { None };
        due.map(|due| self.origin + due.since(Time::ZERO))
    }

    /// Records a failed probe: the next one is later.
    pub(super) fn unanswered(&self, prober: Number, now: Instant, jitter: u64) {
        self.probed(prober, CallOutcome::Failed, now, jitter);
    }

    /// Records a successful probe: the store is up. Returns how long it was down, if `prober` is
    /// still the current one. One success is enough: it came within the timeout of a call, and if
    /// calls fail again, the breaker soon notices.
    pub(super) fn recovered(&self, prober: Number, now: Instant) -> Option<Duration> {
        match self.probed(prober, CallOutcome::Answered, now, 0)? {
            Transition::Closed(down) => Some(down),
            Transition::Opened(_) => None,
        }
    }

    /// Settles a trial call of the state machine; it starts and ends here, because only its outcome
    /// matters.
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

    /// Records that a prober has ended, for any reason, so that another one can start.
    pub(super) fn resigned(&self, prober: Number) {
        let mut watch = self.lock();
        if watch.prober == Some(prober) {
            watch.prober = None;
        }
    }

    /// Time until a retry makes sense.
    pub(super) fn hint(&self, now: Instant) -> Duration {
        let due = self.lock().machine.due();
        due.map_or(LEAST_HINT, |due| due.since(self.time(now)).max(LEAST_HINT))
    }

    /// Copies the state that callers read without the lock.
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

    /// Many calls with a short deadline trigger one probe, and only its outcome counts.
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
