//! A guard is a store: around a store that answers it fulfils the whole contract.

use std::sync::Arc;

use tidegate::MemoryStore;
use tidegate::clock::ManualClock;
use tidegate::guard::GuardedStore;
use tidegate_core::{Time, WallTime};
use tidegate_testkit::subject::Clocked;

fn guarded() -> Clocked<GuardedStore> {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    Clocked::new(GuardedStore::builder(Arc::new(store)).build().unwrap(), move |nanos| {
        clock.set(Time::from_nanos(nanos));
        clock.set_wall(WallTime::from_nanos(nanos));
    })
}

mod conformance {
    use super::guarded;

    tidegate_testkit::conformance_tests!(|| async { guarded() });
}
