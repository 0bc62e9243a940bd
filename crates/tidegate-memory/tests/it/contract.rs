//! The contract: the conformance suite, the oracle, and many threads.

use tidegate_core::{Store, Time, WallTime};
use tidegate_memory::MemoryStore;
use tidegate_memory::clock::ManualClock;
use tidegate_testkit::subject::{BoxFuture, Resolution, Subject};
use tidegate_testkit::{concurrency, property};

struct Memory {
    store: MemoryStore,
    clock: ManualClock,
}

impl Memory {
    fn new() -> Self {
        let clock = ManualClock::new();
        Self { store: MemoryStore::builder().clock(clock.clone()).build().unwrap(), clock }
    }
}

impl Subject for Memory {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn resolution(&self) -> Resolution {
        Resolution::Ns
    }

    fn set_time(&self, nanos: u64) -> BoxFuture<'_, ()> {
        self.clock.set(Time::from_nanos(nanos));
        self.clock.set_wall(WallTime::from_nanos(nanos));
        Box::pin(std::future::ready(()))
    }
}

mod conformance {
    use super::Memory;

    tidegate_testkit::conformance_tests!(|| async { Memory::new() });
}

#[test]
fn decides_as_the_oracle_does() {
    let steps = property::property(Memory::new, property::Effort::default());
    assert!(steps >= 100_000, "only {steps} steps");
}

#[test]
fn holds_its_bounds_under_threads() {
    concurrency::check_all(Memory::new, concurrency::Load::default());
}
