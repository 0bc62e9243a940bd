//! The store contract: conformance suite, oracle, and concurrency.

use tidegate_core::{Time, WallTime};
use tidegate_memory::MemoryStore;
use tidegate_memory::clock::ManualClock;
use tidegate_testkit::subject::Clocked;
use tidegate_testkit::{concurrency, property};

fn memory() -> Clocked<MemoryStore> {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    Clocked::new(store, move |nanos| {
        clock.set(Time::from_nanos(nanos));
        clock.set_wall(WallTime::from_nanos(nanos));
    })
}

mod conformance {
    use super::memory;

    tidegate_testkit::conformance_tests!(|| async { memory() });
}

#[test]
fn decides_as_the_oracle_does() {
    let steps = property::check_against_oracle(memory, property::Effort::default());
    assert!(steps >= 100_000, "only {steps} steps");
}

#[test]
fn holds_its_bounds_under_threads() {
    concurrency::check_all(memory, concurrency::Load::default());
}
