//! No clock of the machine runs backwards for those who have heard of each other.

use std::sync::Mutex;
use std::time::Duration;

use tidegate_core::Time;
use tidegate_memory::clock::{CachedClock, Clock as _, ClockSource, CounterClock, SystemClock};

/// Four threads hand the latest time around under a lock; each reads its own inside.
fn hand_around(clock: &ClockSource, span: Duration) {
    let latest = Mutex::new(Time::ZERO);
    let until = clock.now().after(span);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let mut latest = latest.lock().unwrap();
                    let now = clock.now_after();
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
fn time_handed_around_under_a_lock_never_goes_back() {
    let short = Duration::from_millis(30);
    hand_around(&SystemClock::new().into_source(), short);
    hand_around(&CachedClock::ticking(short / 100).unwrap().into_source(), short);
    // Long enough for the clock to be corrected once.
    hand_around(&ClockSource::default(), Duration::from_millis(1_100));
}

#[test]
fn clocks_made_one_after_the_other_count_from_their_own_creation() {
    let Ok(first) = CounterClock::new() else { return };
    while first.now_after() < Time::from_nanos(1_000_000) {
        std::hint::spin_loop();
    }
    let second = CounterClock::new().unwrap();
    assert!(second.now_after() < first.now_after());
}
