//! A guard is a store: around one that answers it keeps the whole contract.

use std::sync::Arc;

use tidegate::clock::ManualClock;
use tidegate::guard::Guarded;
use tidegate::{MemoryStore, Store, Time, WallTime};
use tidegate_testkit::subject::{BoxFuture, Resolution, Subject};

struct Behind {
    guard: Guarded,
    clock: ManualClock,
}

impl Behind {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        Self { guard: Guarded::builder(Arc::new(store)).build().unwrap(), clock }
    }
}

impl Subject for Behind {
    fn store(&self) -> &dyn Store {
        &self.guard
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
    use super::Behind;

    tidegate_testkit::conformance_tests!(|| async { Behind::new() });
}
