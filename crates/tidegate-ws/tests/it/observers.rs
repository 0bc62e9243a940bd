//! Observers: several of them, and what the number of new buckets means.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::Policy;
use tidegate_ws::{Counter, Gate, Histogram, KeyParts, MessageRule, Observer, Peer, RefusalReason};

use crate::fixture::{Fixture, Session, is_accepted, refusal_reason};

#[derive(Default)]
struct Counts {
    new_buckets: AtomicU64,
    rate_exceeded: AtomicU64,
    hints: AtomicU64,
}

impl Counts {
    fn new_buckets(&self) -> u64 {
        self.new_buckets.load(Ordering::SeqCst)
    }
}

impl Observer for Counts {
    fn count(&self, counter: Counter) {
        match counter {
            Counter::NewBuckets => &self.new_buckets,
            Counter::RateExceeded => &self.rate_exceeded,
            other => panic!("{other:?}"),
        }
        .fetch_add(1, Ordering::SeqCst);
    }

    fn record(&self, _: Histogram, value: u64) {
        self.hints.fetch_add(value, Ordering::SeqCst);
    }
}

/// The second observer replaced the first one.
#[test]
fn every_observer_gets_all_metrics() {
    let fixture = Fixture::new();
    let observers: [Arc<Counts>; 3] = Default::default();
    let gate = Gate::for_types(["SAY"]).limit(fixture.limiter("say", 1, 1));
    let gate = observers.iter().fold(gate, |gate, observer| gate.observer(observer.clone()));
    let gate = gate.build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    assert!(is_accepted(&mut connection, "SAY"));
    assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::Rate);
    for observer in observers {
        assert_eq!(observer.new_buckets(), 1);
        assert_eq!(observer.rate_exceeded.load(Ordering::SeqCst), 1);
        assert_eq!(observer.hints.load(Ordering::SeqCst), 1_000);
    }
}
