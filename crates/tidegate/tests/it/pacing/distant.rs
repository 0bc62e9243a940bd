//! A store that takes its time to answer, and fails when told.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::TokioClock;
use tidegate::pacer::Pacer;
use tidegate::{Engine, Limiter, MemoryStore, Policy, StoreError, StoreHandle};
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};

/// How long a question and its answer take.
pub(super) const ROUND_TRIP: Duration = Duration::from_millis(4);

/// The timing of a store at the other end of a wire: it decides exactly, but not at once.
pub(super) const UP: Timing = Timing::RoundTrip(ROUND_TRIP);

pub(super) type Distant = FaultyStore<MemoryStore>;

/// Every question fails, in the time of an answer.
pub(super) fn down() -> Behaviour {
    Behaviour::from(UP).failing(|| StoreError::TimedOut)
}

/// A distant store on tokio's clock, a pacer on it of at most four at a time, and a limiter.
pub(super) fn distant(policy: Policy) -> (Arc<Distant>, Pacer, Limiter) {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    let distant = FaultyStore::new(store, UP);
    let engine = Engine::on(StoreHandle::shared(distant.clone()));
    let pacer = Pacer::builder(&engine).concurrency(4).build();
    (distant, pacer, engine.limiter("calls", policy).unwrap())
}
