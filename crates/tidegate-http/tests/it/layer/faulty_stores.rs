//! Stores that are slow, broken or both, within the contract of a store.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Engine, MemoryStore, Policy, StoreHandle};
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};

pub(super) type Faulty = Arc<FaultyStore<MemoryStore>>;

/// A bucket that does not refill during a test.
pub(super) fn hourly(capacity: u64) -> Policy {
    Policy::per(1, Duration::from_secs(3_600)).capacity(capacity).build().unwrap()
}

/// A store whose server is unavailable.
pub(super) fn unavailable() -> Faulty {
    FaultyStore::new(MemoryStore::new(), Behaviour::from(Timing::AtOnce).unavailable())
}

/// A store that executes calls at once and responds later, like one behind a network.
pub(super) fn delayed() -> Faulty {
    FaultyStore::new(MemoryStore::new(), Timing::AnsweredLate)
}

/// An engine on a shared store.
pub(super) fn engine_on(store: Faulty) -> Engine {
    Engine::on(StoreHandle::shared(store))
}
