//! Stores that are slow, broken or both, within what the contract of a store allows.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Engine, MemoryStore, Policy, StoreHandle};
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};

pub(super) type Faulty = Arc<FaultyStore<MemoryStore>>;

/// A bucket that gets nothing back while a test runs.
pub(super) fn hourly(capacity: u64) -> Policy {
    Policy::per(1, Duration::from_secs(3_600)).capacity(capacity).build().unwrap()
}

/// A store whose server is gone.
pub(super) fn gone() -> Faulty {
    FaultyStore::new(MemoryStore::new(), Behaviour::from(Timing::AtOnce).unavailable())
}

/// Carries out what it is asked, and answers a moment later, as a store behind a network does.
pub(super) fn remote() -> Faulty {
    FaultyStore::new(MemoryStore::new(), Timing::AnsweredLate)
}

/// An engine on a store that is shared.
pub(super) fn engine_on(store: Faulty) -> Engine {
    Engine::on(StoreHandle::shared(store))
}
