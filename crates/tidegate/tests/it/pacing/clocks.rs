//! R87: an injected clock drives every wait, and one that stands still costs nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate::clock::{Clock, ManualClock, TokioClock};
use tidegate::pacer::Pacer;
use tidegate::{DirectLimiter, Engine, Limiter, MemoryStore, Policy};
use tidegate_core::{Time, WallTime};
use tidegate_memory::clock::ClockWatcher;
use tidegate_testkit::launch::wait_until;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::manual::{SilentClock, Waiter};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Counts the readings of a clock.
#[derive(Clone, Debug)]
struct CountingClock<C> {
    clock: C,
    readings: Arc<AtomicUsize>,
}

impl<C> CountingClock<C> {
    fn new(clock: C) -> Self {
        Self { clock, readings: Arc::default() }
    }

    /// Readings since the last call.
    fn readings(&self) -> usize {
        self.readings.swap(0, Ordering::Relaxed)
    }
}

impl<C: Clock> Clock for CountingClock<C> {
    fn now(&self) -> Time {
        self.readings.fetch_add(1, Ordering::Relaxed);
        self.clock.now()
    }

    fn wall(&self) -> WallTime {
        self.clock.wall()
    }

    fn watch(&self, watcher: Weak<dyn ClockWatcher>) -> bool {
        self.clock.watch(watcher)
    }
}

fn limiter(clock: impl Clock + 'static, policy: Policy) -> Limiter {
    let store = MemoryStore::builder().clock(clock).build().unwrap();
    Engine::on(store).limiter("calls", policy).unwrap()
}

fn one_per(span: Duration) -> Policy {
    Policy::per(1, span).capacity(1).build().unwrap()
}

/// Outside any runtime, and without a call that drives the pacer.
#[test]
fn waits_end_in_the_call_that_moves_a_manual_clock() {
    let clock = ManualClock::new();
    let limiter = limiter(clock.clone(), one_per(HOUR));
    let pacer = Pacer::new(limiter.engine());
    let _first = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let mut waiters: Vec<_> =
        (0..3).map(|_| Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap()).collect();
    clock.advance(HOUR - Duration::from_nanos(1));
    assert_eq!(waiters.iter().map(Waiter::wakes).sum::<usize>(), 0);
    for turn in 0..3 {
        clock.advance(if turn == 0 { Duration::from_nanos(1) } else { HOUR });
        let woken: Vec<_> = waiters.iter().map(Waiter::wakes).collect();
        assert_eq!(woken.iter().sum::<usize>(), turn + 1, "{woken:?}");
        let permit = waiters[turn].poll().unwrap().unwrap();
        assert_eq!(permit.waited(), HOUR * u32::try_from(turn + 1).unwrap());
    }
}

#[test]
fn a_blocked_thread_goes_on_when_a_manual_clock_moves() {
    let clock = ManualClock::new();
    let limiter = limiter(clock.clone(), one_per(HOUR));
    drop(limiter.wait("k").blocking().unwrap());
    std::thread::scope(|scope| {
        let waited = scope.spawn(|| limiter.wait("k").blocking().unwrap().waited());
        // A take is denied for longer while somebody waits.
        let is_waiting = || {
            let denied = limiter.peek("k").now().unwrap();
            (denied.retry().unwrap().after().unwrap() > HOUR).then_some(())
        };
        wait_until("a waiter", is_waiting);
        clock.advance(HOUR);
        assert_eq!(waited.join().unwrap(), HOUR);
    });
}

/// A lease is renewed by the clock that it ends on.
#[test]
fn a_manual_clock_renews_leases() {
    let clock = ManualClock::new();
    let slots = limiter(clock.clone(), Policy::concurrency(1, Some(SECOND * 3)).unwrap());
    let slot = slots.slot("k").now().unwrap();
    for _ in 0..30 {
        clock.advance(SECOND);
        assert!(slots.slot("k").now().is_err(), "it is held");
    }
    assert!(!slot.has_lost_slots());
    drop(slot);
    assert!(slots.slot("k").now().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_manual_clock_that_stands_still_is_not_read() {
    let clock = CountingClock::new(ManualClock::new());
    let limiter = limiter(clock.clone(), one_per(SECOND));
    drop(limiter.wait("k").await.unwrap());
    let waiters = [limiter.wait("k"), limiter.wait("k")].map(|wait| Waiter::join(wait).unwrap());
    clock.readings();
    tokio::time::sleep(HOUR).await;
    assert_eq!(clock.readings(), 0);
    assert!(waiters.iter().all(|waiter| waiter.wakes() == 0));
}

/// The next token is due in a nanosecond, whenever a timer fires: the driver must not spin.
#[tokio::test(start_paused = true)]
async fn a_clock_that_hangs_costs_one_timer_a_second() {
    let clock = CountingClock::new(SilentClock::default());
    let limiter = limiter(clock.clone(), one_per(Duration::from_nanos(1)));
    drop(limiter.wait("k").await.unwrap());
    clock.readings();
    assert!(timeout(HOUR, limiter.wait("k").into_future()).await.is_err());
    let readings = clock.readings();
    assert!(readings > 3_600, "{readings}: it is looked at again");
    assert!(readings < 10 * 3_600, "{readings} readings in an hour");
}

/// R6: the time that passed is reported, not the one that was planned.
#[test]
fn the_reported_wait_includes_later_delays() {
    let clock = ManualClock::new();
    let limiter = limiter(clock.clone(), one_per(SECOND));
    drop(limiter.wait("k").now().unwrap());
    let mut waiter = Waiter::join(limiter.wait("k")).unwrap();
    for _ in 0..3 {
        clock.advance(SECOND / 2);
        limiter.hold("k", SECOND).now().unwrap();
    }
    clock.advance(SECOND * 5);
    assert_eq!(waiter.poll().unwrap().unwrap().waited(), SECOND * 13 / 2);
}

#[tokio::test(start_paused = true)]
async fn a_direct_limiter_waits_by_its_own_clock() {
    let clock = ManualClock::new();
    let direct = Arc::new(DirectLimiter::with_clock(one_per(HOUR), clock.clone()).unwrap());
    assert_eq!(direct.wait(1, HOUR).await, Ok(Duration::ZERO));
    let waiting = tokio::spawn({
        let direct = direct.clone();
        async move { direct.wait(1, HOUR).await }
    });
    tokio::time::sleep(HOUR * 2).await;
    assert!(!waiting.is_finished(), "the machine's time does not count");
    clock.advance(HOUR - SECOND);
    tokio::time::sleep(HOUR).await;
    clock.set(Time::ZERO);
    tokio::time::sleep(HOUR).await;
    clock.advance(SECOND / 2);
    tokio::time::sleep(HOUR).await;
    assert!(!waiting.is_finished());
    clock.advance(SECOND);
    assert_eq!(waiting.await.unwrap(), Ok(HOUR + SECOND / 2), "the time that was shown");
}

#[tokio::test(start_paused = true)]
async fn a_direct_limiter_does_not_spin_on_a_clock_that_hangs() {
    let clock = CountingClock::new(SilentClock::default());
    let direct = DirectLimiter::with_clock(one_per(SECOND), clock.clone()).unwrap();
    assert_eq!(direct.wait(1, HOUR).await, Ok(Duration::ZERO));
    clock.readings();
    assert!(timeout(HOUR, direct.wait(1, HOUR)).await.is_err());
    let readings = clock.readings();
    assert!((1_000..10_000).contains(&readings), "{readings} readings in an hour");
}

/// R16, R60: a thousand waiters stop the runtime no more often than a thousand sleeps, and not once
/// for each of them and every token.
#[tokio::test(start_paused = true)]
async fn a_thousand_waiters_cost_a_thousand_timers() {
    let limiter = limiter(TokioClock::new(), one_per(SECOND));
    drop(limiter.wait("k").await.unwrap());
    let metrics = Handle::current().metrics();
    let start = metrics.worker_park_count(0);
    for _ in 0..1_000 {
        tokio::time::sleep(SECOND).await;
    }
    let before = metrics.worker_park_count(0);
    let waiters: Vec<_> =
        (0..1_000).map(|_| tokio::spawn(limiter.wait("k").into_future())).collect();
    for waiter in waiters {
        drop(waiter.await.unwrap().unwrap());
    }
    let timers = metrics.worker_park_count(0) - before;
    assert!((1_000..=before - start).contains(&timers), "{timers} stops of the runtime");
}
