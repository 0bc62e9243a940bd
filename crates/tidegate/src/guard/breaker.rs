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
pub(super) use tidegate_core::breaker::Epoch;
use tidegate_core::breaker::{BreakerSettings, CallOutcome, CircuitBreaker, Transition};
use tokio::time::Instant;

/// Consecutive failures after which the store counts as down.
const FAILURE_THRESHOLD: u32 = 3;
/// Delay of the first probe after that.
const FIRST_PROBE_DELAY: Duration = Duration::from_millis(100);
/// Longest interval between two probes. If a store fails again within this time after it came back,
/// the probe intervals continue to grow from where they were.
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// How late a probe may be before its prober counts as stuck, for example in a runtime that is no
/// longer driven.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// Shortest wait that callers are given, so that they do not come back before the probe has
/// finished.
pub(super) const MIN_RETRY_AFTER: Duration = Duration::from_millis(100);
/// Stands for "down" in the published epoch. No epoch has this number.
const DOWN: u64 = u64::MAX;

/// Identifies one of the successive probers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProberId(u64);

#[derive(Debug)]
pub(super) struct Breaker {
    /// The epoch in which the store is called, or `DOWN`. A copy of the state machine's.
    epoch: AtomicU64,
    /// Whether the last call of the epoch failed. A copy of the state machine's.
    is_failing: AtomicBool,
    state: Mutex<State>,
    /// Origin of the times in the state machine.
    origin: Instant,
}

#[derive(Debug)]
struct State {
    machine: CircuitBreaker,
    /// The prober of a store that is down.
    prober: Option<ProberId>,
    probers_started: u64,
    /// When a store that is up was last probed because a call with a short deadline got no answer.
    verified_at: Option<Instant>,
}

impl Default for Breaker {
    fn default() -> Self {
        let settings = BreakerSettings::after_failures(FAILURE_THRESHOLD)
            .pause(FIRST_PROBE_DELAY, MAX_PROBE_INTERVAL)
            .keep_backoff_within(MAX_PROBE_INTERVAL);
        let machine = CircuitBreaker::new(settings);
        let epoch = AtomicU64::new(machine.closed_epoch().map_or(DOWN, Epoch::number));
        let state =
            Mutex::new(State { machine, prober: None, probers_started: 0, verified_at: None });
        Self { epoch, is_failing: AtomicBool::new(false), state, origin: Instant::now() }
    }
}

impl Breaker {
    /// Whether the store is called.
    pub(super) fn is_up(&self) -> bool {
        self.current_epoch().is_some()
    }

    /// The current epoch; `None` if the store is down.
    #[inline]
    pub(super) fn current_epoch(&self) -> Option<Epoch> {
        let number = self.epoch.load(Ordering::Acquire);
        (number != DOWN).then_some(Epoch::from_number(number))
    }

    /// Records an answered call.
    #[inline]
    pub(super) fn call_succeeded(&self) {
        if self.is_failing.load(Ordering::Relaxed) {
            let mut state = self.lock();
            state.machine.clear_failures();
            self.publish(&state);
        }
    }

    /// Records a failed call of `epoch`. Returns `true` if the store is down from now on. `jitter`
    /// is any number; it spreads the probes of many nodes.
    pub(super) fn call_failed(&self, epoch: Epoch, now: Instant, jitter: u64) -> bool {
        let now = self.time(now);
        self.change(|machine| machine.settle(epoch, CallOutcome::Failed, now, jitter))
    }

    /// Whether to probe a store that did not answer a call with a short deadline. There may be many
    /// such calls, and one probe per `timeout` is enough.
    pub(super) fn should_verify(&self, epoch: Epoch, now: Instant, timeout: Duration) -> bool {
        let mut state = self.lock();
        let pause = timeout.saturating_add(FIRST_PROBE_DELAY);
        let just_now = |probed: Instant| now.saturating_duration_since(probed) < pause;
        if state.machine.closed_epoch() != Some(epoch) || state.verified_at.is_some_and(just_now) {
            return false;
        }
        state.verified_at = Some(now);
        true
    }

    /// Records that this probe failed. Returns `true` if the store is down from now on.
    pub(super) fn verification_failed(&self, epoch: Epoch, now: Instant, jitter: u64) -> bool {
        let now = self.time(now);
        self.change(|machine| machine.trip(epoch, now, jitter))
    }

    fn change(&self, change: impl FnOnce(&mut CircuitBreaker) -> Option<Transition>) -> bool {
        let mut state = self.lock();
        let transition = change(&mut state.machine);
        if transition.is_some() {
            state.verified_at = None;
        }
        self.publish(&state);
        transition.is_some()
    }

    /// Registers a new prober if the store is down and has no prober, or only a stuck one.
    /// `timeout` is the longest time that one probe takes.
    pub(super) fn register_prober(&self, now: Instant, timeout: Duration) -> Option<ProberId> {
        let mut state = self.lock();
        let due = state.machine.next_trial_at()?;
        let is_stuck = due.after(timeout.saturating_add(STUCK_AFTER)) < self.time(now);
        if state.prober.is_some() && !is_stuck {
            return None;
        }
        state.probers_started += 1;
        state.prober = Some(ProberId(state.probers_started));
        state.prober
    }

    /// Time of the next probe; `None` if this prober has been replaced or the store is up.
    pub(super) fn next_probe(&self, prober: ProberId) -> Option<Instant> {
        let state = self.lock();
        let due = if state.prober == Some(prober) { state.machine.next_trial_at() } else { None };
        due.map(|due| self.origin + due.since(Time::ZERO))
    }

    /// Records a failed probe: the next one is later.
    pub(super) fn probe_failed(&self, prober: ProberId, now: Instant, jitter: u64) {
        self.settle_probe(prober, CallOutcome::Failed, now, jitter);
    }

    /// Records a successful probe: the store is up. Returns how long it was down, if `prober` is
    /// still the current one. One success is enough: it came within the timeout of a call, and if
    /// calls fail again, the breaker soon notices.
    pub(super) fn probe_succeeded(&self, prober: ProberId, now: Instant) -> Option<Duration> {
        match self.settle_probe(prober, CallOutcome::Succeeded, now, 0)? {
            Transition::Closed(down) => Some(down),
            Transition::Opened(_) => None,
        }
    }

    /// Settles a trial call of the state machine; it starts and ends here, because only its outcome
    /// matters.
    fn settle_probe(
        &self,
        prober: ProberId,
        outcome: CallOutcome,
        now: Instant,
        jitter: u64,
    ) -> Option<Transition> {
        let mut state = self.lock();
        if state.prober != Some(prober) {
            return None;
        }
        let trial = state.machine.start_trial()?;
        let transition = state.machine.settle(trial, outcome, self.time(now), jitter);
        if outcome == CallOutcome::Succeeded {
            state.prober = None;
        }
        self.publish(&state);
        transition
    }

    /// Records that a prober has ended, for any reason, so that another one can start.
    pub(super) fn prober_ended(&self, prober: ProberId) {
        let mut state = self.lock();
        if state.prober == Some(prober) {
            state.prober = None;
        }
    }

    /// Time until a retry makes sense.
    pub(super) fn retry_after(&self, now: Instant) -> Duration {
        let due = self.lock().machine.next_trial_at();
        due.map_or(MIN_RETRY_AFTER, |due| due.since(self.time(now)).max(MIN_RETRY_AFTER))
    }

    /// Copies the state that callers read without the lock.
    fn publish(&self, state: &State) {
        let number = state.machine.closed_epoch().map_or(DOWN, Epoch::number);
        self.is_failing.store(state.machine.failures() != 0, Ordering::Relaxed);
        self.epoch.store(number, Ordering::Release);
    }

    fn time(&self, now: Instant) -> Time {
        Time::ZERO.after(now.saturating_duration_since(self.origin))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const TIMEOUT: Duration = Duration::from_millis(50);

    fn fail(breaker: &Breaker, now: Instant) {
        for _ in 0..FAILURE_THRESHOLD {
            breaker.call_failed(breaker.current_epoch().unwrap(), now, 0);
        }
        assert!(!breaker.is_up());
    }

    #[test]
    fn only_consecutive_failures_of_the_current_epoch_count() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        let epoch = breaker.current_epoch().unwrap();
        for _ in 0..10 {
            assert!(!breaker.call_failed(epoch, now, 0));
            assert!(!breaker.call_failed(epoch, now, 0));
            breaker.call_succeeded();
        }
        fail(&breaker, now);
        let prober = breaker.register_prober(now, TIMEOUT).unwrap();
        assert_eq!(breaker.probe_succeeded(prober, now + SECOND), Some(SECOND));
        for _ in 0..10 {
            assert!(!breaker.call_failed(epoch, now, 0), "a call from before the store was down");
        }
        assert!(breaker.is_up());
    }

    /// Many calls with a short deadline trigger one probe, and only its outcome counts.
    #[test]
    fn short_deadlines_trigger_one_probe() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        let epoch = breaker.current_epoch().unwrap();
        let should_verify = |at| breaker.should_verify(epoch, at, TIMEOUT);
        let next = now + TIMEOUT + FIRST_PROBE_DELAY;
        let before = next - Duration::from_nanos(1);
        assert_eq!(
            [now, now, before, next, next].map(should_verify),
            [true, false, false, true, false]
        );
        assert!(breaker.is_up());
        assert!(breaker.verification_failed(epoch, next, 0));
        assert!(!breaker.is_up());
        assert!(!breaker.verification_failed(epoch, next, 0), "already known");
        assert!(!should_verify(next + SECOND), "another probe is running");
        let prober = breaker.register_prober(next, TIMEOUT).unwrap();
        breaker.probe_succeeded(prober, next).unwrap();
        assert!(!breaker.verification_failed(epoch, next, 0), "of an earlier epoch");
        assert!(breaker.should_verify(breaker.current_epoch().unwrap(), next, TIMEOUT));
    }

    #[test]
    fn a_prober_is_replaced_when_it_ends_or_is_stuck() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        assert_eq!(breaker.register_prober(now, TIMEOUT), None, "nothing to probe");
        fail(&breaker, now);
        let first = breaker.register_prober(now, TIMEOUT).unwrap();
        assert_eq!(breaker.next_probe(first), Some(now + FIRST_PROBE_DELAY));
        assert_eq!(breaker.register_prober(now + SECOND, TIMEOUT), None);
        breaker.prober_ended(first);
        let second = breaker.register_prober(now + SECOND, TIMEOUT).unwrap();
        let third = breaker.register_prober(now + SECOND * 2, TIMEOUT).unwrap();
        assert_eq!((breaker.next_probe(first), breaker.next_probe(second)), (None, None));
        breaker.prober_ended(second);
        assert_eq!(breaker.probe_succeeded(second, now + SECOND), None);
        assert_eq!(breaker.register_prober(now + SECOND, TIMEOUT), None, "the third is active");
        assert_eq!(breaker.probe_succeeded(third, now + SECOND * 2), Some(SECOND * 2));
    }

    #[test]
    fn probe_intervals_keep_growing_after_a_false_recovery() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        fail(&breaker, now);
        let prober = breaker.register_prober(now, TIMEOUT).unwrap();
        for _ in 0..3 {
            breaker.probe_failed(prober, now, 0);
        }
        assert_eq!(breaker.retry_after(now), FIRST_PROBE_DELAY * 8);
        breaker.probe_succeeded(prober, now).unwrap();
        assert_eq!(breaker.retry_after(now), MIN_RETRY_AFTER);
        fail(&breaker, now + SECOND);
        assert_eq!(breaker.retry_after(now + SECOND), FIRST_PROBE_DELAY * 16);
        let prober = breaker.register_prober(now + SECOND, TIMEOUT).unwrap();
        breaker.probe_succeeded(prober, now + SECOND).unwrap();
        fail(&breaker, now + SECOND + MAX_PROBE_INTERVAL);
        assert_eq!(breaker.retry_after(now + SECOND + MAX_PROBE_INTERVAL), FIRST_PROBE_DELAY);
    }
}
