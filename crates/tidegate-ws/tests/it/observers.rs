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

/// R223: a slow client with one key counts with every message, because its bucket has refilled, but
/// never more often than the limit refills. That is the bound of the alert in
/// `docs/websockets.md`: a key function without bound exceeds it, and no other one does.
#[test]
fn new_buckets_of_a_key_are_bounded_by_the_rate_of_the_limit() {
    let fixture = Fixture::new();
    let counts = Arc::new(Counts::default());
    let ceiling = Policy::per_second(1_000).capacity(1_000).build().unwrap();
    let gate = |rule: MessageRule<Session>| {
        Gate::for_types(["SAY"])
            .limit(rule)
            .connection_ceiling(fixture.limiter_with("ceiling", ceiling))
            .observer(counts.clone())
            .build()
            .unwrap()
    };
    // Two tokens per second and key.
    let by_user = gate(MessageRule::new(fixture.limiter("say", 2, 100)));
    let mut connection = by_user.connect(Peer::new(Session::of("alice")));
    for message in 1..=20 {
        assert!(is_accepted(&mut connection, "SAY"));
        assert_eq!(counts.new_buckets(), message, "the ceiling does not count");
        fixture.clock.advance(Duration::from_secs(1));
    }
    // Ten messages in a second, for ten seconds.
    let before = counts.new_buckets();
    for _ in 0..100 {
        assert!(is_accepted(&mut connection, "SAY"));
        fixture.clock.advance(Duration::from_millis(100));
    }
    assert_eq!(counts.new_buckets() - before, 1, "the bucket does not refill in between");
    let before = counts.new_buckets();
    fixture.clock.advance(Duration::from_secs(100));
    for _ in 0..20 {
        assert!(is_accepted(&mut connection, "SAY"));
        fixture.clock.advance(Duration::from_millis(500));
    }
    assert_eq!(
        counts.new_buckets() - before,
        20,
        "twice per second, and no faster client exceeds it"
    );

    let number = AtomicU64::new(0);
    let by_message = gate(MessageRule::new(fixture.limiter("message", 2, 100)).key(move |_| {
        KeyParts::from(["message"]).and(number.fetch_add(1, Ordering::Relaxed).to_string())
    }));
    let mut connection = by_message.connect(Peer::new(Session::of("alice")));
    let before = counts.new_buckets();
    for _ in 0..100 {
        assert!(is_accepted(&mut connection, "SAY"));
        fixture.clock.advance(Duration::from_millis(100));
    }
    assert_eq!(counts.new_buckets() - before, 100, "ten per second, far above two");
}
