//! No clock runs backwards between threads that synchronize with each other.

use std::sync::Mutex;
use std::time::Duration;

use tidegate_core::Time;
use tidegate_memory::clock::{CachedClock, Clock as _, ClockSource, CounterClock, SystemClock};

/// Four threads share the latest time under a lock, and each reads the clock while holding it.
fn assert_monotonic_across_threads(clock: &ClockSource, span: Duration) {
    let latest = Mutex::new(Time::ZERO);
    let until = clock.now().after(span);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let mut latest = latest.lock().unwrap();
                    let now = clock.now_ordered();
                    assert!(now >= *latest, "{now:?} after {latest:?} by {clock:?}");
                    *latest = now;
                    if now > until {
                        break;
                    }
                }
            });
        }
    });
}

#[test]
fn no_clock_runs_backwards_between_threads() {
    let short = Duration::from_millis(30);
    assert_monotonic_across_threads(&SystemClock::new().into_source(), short);
    assert_monotonic_across_threads(
        &CachedClock::ticking(short / 100).unwrap().into_source(),
        short,
    );
    // Long enough for the clock to be corrected once.
    assert_monotonic_across_threads(&ClockSource::default(), Duration::from_millis(1_100));
}

#[test]
fn each_clock_counts_from_its_own_creation() {
    let Ok(first) = CounterClock::new() else { return };
    while first.now_ordered() < Time::from_nanos(1_000_000) {
        std::hint::spin_loop();
    }
    let second = CounterClock::new().unwrap();
    assert!(second.now_ordered() < first.now_ordered());
}
