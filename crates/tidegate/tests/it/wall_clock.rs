//! R11: no decision depends on the wall clock, except for calendar quotas. Another process decides
//! while its wall clock is stepped.

use std::time::Duration;

use tidegate::admission::{Admission, Caller, Rules};
use tidegate::clock::{SystemClock, wall_now};
use tidegate::{DirectLimiter, Engine, Limiter, MemoryStore, Policy, Retry, Schedule};
use tidegate_testkit::launch::{Peer, WallClock};

const HOUR: Duration = Duration::from_secs(3_600);
const TEST: &str = "wall_clock::a_step_of_the_wall_clock_changes_no_decision";

/// What was spent, held and reported before the steps, on one clock.
struct Decided {
    limiter: Limiter,
    slots: Limiter,
    daily: Limiter,
    direct: DirectLimiter,
    admission: Admission,
}

impl Decided {
    fn new(store: MemoryStore, direct: DirectLimiter) -> Self {
        let engine = Engine::on(store);
        let limiter = engine.limiter("calls", hourly()).unwrap();
        let lease = Policy::concurrency(1, Some(HOUR / 2)).unwrap();
        let slots = engine.limiter("slots", lease).unwrap();
        let daily = engine.calendar("daily", 1, Schedule::daily("UTC").unwrap()).unwrap();
        let admission = Admission::new(&engine, Rules::none().backpressure(1)).unwrap();
        assert!(limiter.take("spent").now().unwrap().is_allowed());
        limiter.hold("held", HOUR / 2).now().unwrap();
        assert!(slots.take("slot").now().unwrap().is_allowed());
        assert!(daily.take("day").now().unwrap().is_allowed());
        assert!(direct.take(1).is_allowed());
        admission.set_pending(2, HOUR / 2);
        Self { limiter, slots, daily, direct, admission }
    }

    /// Asserts that nothing has changed.
    fn check(&self) {
        for (key, most) in [("spent", HOUR), ("held", HOUR * 3 / 2)] {
            let denied = self.limiter.take(key).now().unwrap();
            assert_waits(key, denied.retry(), most);
        }
        assert_waits("direct", self.direct.take(1).retry(), HOUR);
        assert!(!self.slots.take("slot").now().unwrap().is_allowed(), "the lease runs");
        let new = wall_now().as_nanos().to_string();
        assert!(self.limiter.take(&new).now().unwrap().is_allowed(), "a new key is full");
        let rejected = self.admission.admit(Caller::new()).now().unwrap();
        assert!(!rejected.is_admitted(), "the reported number is valid");
    }
}

/// The hint is below its maximum by the minutes that this test takes at most.
fn assert_waits(name: &str, retry: Option<Retry>, most: Duration) {
    let wait = retry.and_then(Retry::after).unwrap();
    assert!(wait <= most && wait > most - HOUR / 6, "{name}: {wait:?}");
}

fn hourly() -> Policy {
    Policy::per_hour(1).burst(1).build().unwrap()
}

#[test]
fn a_step_of_the_wall_clock_changes_no_decision() {
    if Peer::env_var("TIDEGATE_TEST_WALL_CLOCK").is_some() {
        return decide();
    }
    let clock = WallClock::new();
    let mut env = clock.env();
    env.push(("TIDEGATE_TEST_WALL_CLOCK", "1".to_owned()));
    let env: Vec<_> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut peer = Peer::spawn(TEST, &env);
    let start: i128 = peer.line().parse().unwrap();
    let hours = |time: String| (time.parse::<i128>().unwrap() - start + 1_800).div_euclid(3_600);
    for step in [1, -1, 0, -1, 1] {
        clock.step(3_600 * step);
        peer.send_line("check");
        assert_eq!(hours(peer.line()), i128::from(step), "the process sees the step");
    }
    clock.step(3_600 * 25);
    peer.send_line("tomorrow");
    assert_eq!(hours(peer.line()), 25);
    assert_eq!(peer.finish(), [""; 0]);
}

/// In the other process.
fn decide() {
    let system = SystemClock::new();
    let store = MemoryStore::builder().clock(system).build().unwrap();
    let all = [
        Decided::new(MemoryStore::new(), DirectLimiter::new(hourly()).unwrap()),
        Decided::new(store, DirectLimiter::with_clock(hourly(), system).unwrap()),
    ];
    report();
    // Waits across the first step.
    let paced = Limiter::new(Policy::per_second(1).burst(1).build().unwrap());
    drop(paced.wait("k").now().unwrap());
    let waiting = std::thread::spawn(move || paced.wait("k").blocking().unwrap().waited());
    while let Some(line) = Peer::read_line() {
        all.iter().for_each(Decided::check);
        if line == "tomorrow" {
            let is_open = |one: &Decided| one.daily.take("day").now().unwrap().is_allowed();
            assert!(all.iter().all(is_open), "calendars follow the wall clock");
        }
        report();
    }
    let waited = waiting.join().unwrap();
    assert!(waited < HOUR / 6, "{waited:?}");
}

/// Reports the wall time in seconds.
fn report() {
    Peer::report(&(wall_now().as_nanos() / 1_000_000_000).to_string());
}
