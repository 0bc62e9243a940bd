//! The breaker: whether the store is asked at all, and when it is probed next.
//!
//! It reads no clock, knows no store and starts nothing, so all of it runs under any time that it
//! is given. Callers pay one atomic load while the store is up, and never serve as the probe.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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

/// Whether a guarded store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreState {
    /// It answers, and decides.
    Up,
    /// It does not answer. Failure rules decide, and the store is probed in the background.
    Down,
}

/// The turn in which a call began: what happened in an earlier one tells nothing about this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn(u64);

/// Which of the probers, one after the other, is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u64);

#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// How often the state has changed: even while the store is up, odd while it is down.
    turns: AtomicU64,
    /// Failures in a row.
    failures: AtomicU32,
    watch: Mutex<Watch>,
}

/// What is to be known while the store is down.
#[derive(Debug, Default)]
struct Watch {
    /// When the state changed last.
    changed: Option<Instant>,
    /// When it is probed next.
    due: Option<Instant>,
    /// Probes in a row that were not answered, or were and proved nothing.
    unanswered: u32,
    /// Who probes.
    prober: Option<Number>,
    probers: u64,
    /// When a store that is up was probed last, because somebody in a hurry got no answer.
    doubted: Option<Instant>,
}

impl Breaker {
    /// Whether the store is asked.
    pub(super) fn state(&self) -> StoreState {
        if self.begin().is_some() { StoreState::Up } else { StoreState::Down }
    }

    /// The present turn, if the store is to be asked in it.
    #[inline]
    pub(super) fn begin(&self) -> Option<Turn> {
        let turn = self.turns.load(Ordering::Acquire);
        (turn % 2 == 0).then_some(Turn(turn))
    }

    /// The store has answered.
    #[inline]
    pub(super) fn answered(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// The store has failed a call of `turn`. `true` if it is down from now on; `jitter` is any
    /// number, to spread the probes of many nodes.
    pub(super) fn failed(&self, turn: Turn, now: Instant, jitter: u64) -> bool {
        let mut watch = self.lock();
        if self.begin() != Some(turn)
            || self.failures.fetch_add(1, Ordering::Relaxed) + 1 < TOLERATED
        {
            return false;
        }
        self.open(&mut watch, now, jitter);
        true
    }

    /// Whether a store that did not answer somebody in a hurry is to be probed: there may be many
    /// of them, and one probe of `timeout` is enough.
    pub(super) fn doubt(&self, turn: Turn, now: Instant, timeout: Duration) -> bool {
        let mut watch = self.lock();
        let pause = timeout.saturating_add(FIRST_PROBE);
        let just_now = |probed: Instant| now.saturating_duration_since(probed) < pause;
        if self.begin() != Some(turn) || watch.doubted.is_some_and(just_now) {
            return false;
        }
        watch.doubted = Some(now);
        true
    }

    /// That probe was not answered. `true` if the store is down from now on.
    pub(super) fn confirmed(&self, turn: Turn, now: Instant, jitter: u64) -> bool {
        let mut watch = self.lock();
        let news = self.begin() == Some(turn);
        if news {
            self.open(&mut watch, now, jitter);
        }
        news
    }

    fn open(&self, watch: &mut Watch, now: Instant, jitter: u64) {
        let brief = |up: Instant| now.saturating_duration_since(up) < RAREST_PROBE;
        let again = watch.changed.is_some_and(brief);
        watch.unanswered = if again { watch.unanswered.saturating_add(1) } else { 0 };
        watch.changed = Some(now);
        watch.due = Some(now + pause(watch.unanswered, jitter));
        watch.doubted = None;
        self.failures.store(0, Ordering::Relaxed);
        self.turns.fetch_add(1, Ordering::Release);
    }

    /// A new prober, if the store is down and nobody probes it, or somebody who should have done
    /// so long ago; `timeout` is how long one probe takes at most.
    pub(super) fn enlist(&self, now: Instant, timeout: Duration) -> Option<Number> {
        let mut watch = self.lock();
        let stuck = || {
            let due = watch.due.and_then(|due| due.checked_add(timeout.saturating_add(PATIENCE)));
            due.is_some_and(|due| due < now)
        };
        if self.begin().is_some() || (watch.prober.is_some() && !stuck()) {
            return None;
        }
        watch.probers += 1;
        watch.prober = Some(Number(watch.probers));
        watch.prober
    }

    /// When this prober is to probe; `None` if it is not wanted any more.
    pub(super) fn due(&self, prober: Number) -> Option<Instant> {
        let watch = self.lock();
        if watch.prober == Some(prober) { watch.due } else { None }
    }

    /// A probe was not answered: the next one is later.
    pub(super) fn unanswered(&self, prober: Number, now: Instant, jitter: u64) {
        let mut watch = self.lock();
        if watch.prober == Some(prober) {
            watch.unanswered = watch.unanswered.saturating_add(1);
            watch.due = Some(now + pause(watch.unanswered, jitter));
        }
    }

    /// A probe was answered: the store is up. Says how long it was down, if this prober may say
    /// so. One answer is enough: it came within the time-out that callers grant, and a store that
    /// fails them again is soon found out.
    pub(super) fn recovered(&self, prober: Number, now: Instant) -> Option<Duration> {
        let mut watch = self.lock();
        if watch.prober != Some(prober) {
            return None;
        }
        let since = watch.changed.replace(now);
        (watch.due, watch.prober) = (None, None);
        self.turns.fetch_add(1, Ordering::Release);
        Some(since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)))
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
        let due = self.lock().due;
        due.map_or(LEAST_HINT, |due| due.saturating_duration_since(now).max(LEAST_HINT))
    }

    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time before a probe after so many that were not answered: doubled each time up to a bound,
/// less up to a quarter, so that nodes which lost the store together do not all find it together.
fn pause(unanswered: u32, jitter: u64) -> Duration {
    let full = FIRST_PROBE.saturating_mul(1 << unanswered.min(16)).min(RAREST_PROBE);
    let (quarter, parts) = (full / 4, u32::from(u16::MAX));
    let part = u32::try_from(jitter % u64::from(parts + 1)).unwrap_or(0);
    full - quarter * part / parts
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
        assert_eq!(breaker.state(), StoreState::Down);
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
        assert_eq!(breaker.state(), StoreState::Up);
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
        assert_eq!(breaker.state(), StoreState::Up);
        assert!(breaker.confirmed(turn, next, 0));
        assert_eq!(breaker.state(), StoreState::Down);
        assert!(!breaker.confirmed(turn, next, 0), "known by now");
        assert!(!doubt(next + SECOND), "there is another probe");
        let prober = breaker.enlist(next, TIMEOUT).unwrap();
        breaker.recovered(prober, next).unwrap();
        assert!(!breaker.confirmed(turn, next, 0), "of an earlier turn");
        assert!(breaker.doubt(breaker.begin().unwrap(), next, TIMEOUT));
    }

    #[test]
    fn pauses_double_up_to_a_bound_less_a_quarter_at_most() {
        let millis = |unanswered, jitter| pause(unanswered, jitter).as_millis();
        assert_eq!([0, 1, 2, 5, 6, 99].map(|n| millis(n, 0)), [100, 200, 400, 3_200, 5_000, 5_000]);
        assert_eq!([0, 6].map(|n| millis(n, u16::MAX.into())), [75, 3_750]);
        for jitter in [1, 99, 65_000, u64::MAX, 1 << 40] {
            assert!((3_750..=5_000).contains(&millis(9, jitter)));
        }
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
