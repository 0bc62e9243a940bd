//! A store with a round trip, which fails on demand.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::TokioClock;
use tidegate::pacer::Pacer;
use tidegate::{Engine, Limiter, MemoryStore, Policy, StoreError, StoreHandle};
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};

/// Duration of a call and its answer.
pub(super) const ROUND_TRIP: Duration = Duration::from_millis(4);

/// The timing of a remote store: it decides exactly, but not at once.
pub(super) const UP: Timing = Timing::RoundTrip(ROUND_TRIP);

pub(super) type RemoteStore = FaultyStore<MemoryStore>;

/// Every call fails, after a round trip.
pub(super) fn down() -> Behaviour {
    Behaviour::from(UP).failing(|| StoreError::TimedOut)
}

/// A remote store on tokio's clock, a pacer on it with a concurrency of four, and a limiter.
pub(super) fn remote(policy: Policy) -> (Arc<RemoteStore>, Pacer, Limiter) {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    let remote = FaultyStore::new(store, UP);
    let engine = Engine::on(StoreHandle::shared(remote.clone()));
    let pacer = Pacer::builder(&engine).concurrency(4).build();
    (remote, pacer, engine.limiter("calls", policy).unwrap())
}
