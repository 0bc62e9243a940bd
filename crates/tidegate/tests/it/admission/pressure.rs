//! Back-pressure: counted here, reported from outside, and decided without touching a bucket.

use std::future::IntoFuture as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate::admission::{Admission, AdmittedRequest, Caller, Rules, Tier};
use tidegate::{Engine, MemoryStore, Retry, StoreHandle};
use tidegate_testkit::faulty_store::{FaultyStore, Timing};

use super::{Fixture, bucket, caller_of};

const SHORT: Duration = Duration::from_secs(1);

#[test]
fn requests_at_the_threshold_are_admitted() {
    let fixture = Fixture::with(Rules::default());
    for (pending, admitted) in [(0, true), (99, true), (100, true), (101, false), (102, false)] {
        fixture.admission.set_pending(pending, SHORT);
        assert_eq!(fixture.admits(Caller::new()), admitted, "{pending}");
        assert_eq!(fixture.admission.pending(), pending);
    }
}

#[test]
fn the_retry_hint_grows_with_the_pending_count() {
    let fixture = Fixture::with(Rules::default().backpressure(50));
    for (pending, hint) in [(51, 10), (60, 100), (549, 4_990), (1_000, 5_000), (u32::MAX, 5_000)] {
        fixture.admission.set_pending(pending, SHORT);
        let rejection = fixture.admission.admit(Caller::new()).now().unwrap().rejected().unwrap();
        assert_eq!(rejection.retry, Retry::After(Duration::from_millis(hint)), "{pending}");
        assert_eq!((rejection.tier, rejection.tier.reason()), (Tier::Backpressure, "queue_depth"));
        assert_eq!(rejection.id, None);
        assert_eq!(rejection.tier.reason(), "queue_depth");
    }
}

#[test]
fn passes_count_as_pending_until_dropped() {
    let fixture = Fixture::with(Rules::default().backpressure(2));
    let admit = || fixture.admission.admit(Caller::new()).now().unwrap().admitted();
    let mut passes: Vec<_> = (0..3).map(|_| admit().unwrap()).collect();
    assert_eq!(fixture.admission.pending(), 3);
    assert!(admit().is_none());
    passes.pop();
    passes.push(admit().unwrap());
    let guards: Vec<_> = passes.into_iter().map(AdmittedRequest::into_in_flight).collect();
    assert_eq!(fixture.admission.pending(), 3, "the guard alone is enough");
    drop(guards);
    assert_eq!(fixture.admission.pending(), 0);
}

#[test]
fn a_reported_count_expires_and_the_own_count_does_not() {
    let fixture = Fixture::with(Rules::default().backpressure(5));
    fixture.admission.set_pending(1_000, SHORT);
    let guards: Vec<_> = (0..6).map(|_| fixture.admission.track_request()).collect();
    assert_eq!(
        fixture.admission.pending(),
        1_000,
        "not added: both numbers count the same requests"
    );
    fixture.clock.advance(SHORT - Duration::from_nanos(1));
    assert_eq!(fixture.admission.pending(), 1_000);
    fixture.clock.advance(Duration::from_nanos(1));
    assert_eq!(fixture.admission.pending(), 6);
    assert_eq!(fixture.rejecting_tier(Caller::new()), Some(Tier::Backpressure));
    drop(guards);
    assert!(fixture.admits(Caller::new()));
    fixture.admission.set_pending(7, SHORT);
    assert!(!fixture.admits(Caller::new()), "reported again");
    fixture.admission.set_pending(0, SHORT);
    assert!(fixture.admits(Caller::new()));
}

#[test]
fn back_pressure_touches_no_bucket() {
    let fixture = Fixture::with(Rules::default());
    let alice = caller_of("acme", "alice");
    assert!(fixture.admits(alice));
    let keys =
        fixture.admission.limiter(Tier::Client).unwrap().engine().store().local().unwrap().len();
    fixture.admission.set_pending(500, SHORT);
    for _ in 0..50 {
        assert_eq!(fixture.rejecting_tier(alice), Some(Tier::Backpressure));
        assert_eq!(fixture.rejecting_tier(caller_of("new", "comer")), Some(Tier::Backpressure));
    }
    assert_eq!(fixture.remaining(Tier::Client, alice), 99);
    assert_eq!(fixture.remaining(Tier::Organization, alice), 999);
    assert_eq!(
        fixture.admission.limiter(Tier::Client).unwrap().engine().store().local().unwrap().len(),
        keys
    );
    assert_eq!(fixture.admission.rejected_count(Tier::Backpressure), 100);
}

/// A write is checked before it is queued: a rejected write has never been in the queue.
#[test]
fn a_rejected_write_never_reaches_the_queue() {
    let fixture = Fixture::with(Rules::default().backpressure(3));
    let mut queue = Vec::new();
    for write in 0..10 {
        if let Some(admitted) =
            fixture.admission.admit(caller_of("acme", "alice")).now().unwrap().admitted()
        {
            queue.push((write, admitted));
        }
    }
    let queued: Vec<_> = queue.iter().map(|(write, _)| *write).collect();
    assert_eq!(queued, [0, 1, 2, 3], "with three pending a fourth is admitted, a fifth is not");
}

/// Requests used to be counted only after the store had answered: while the store was slow, none
/// was pending and all were admitted.
#[tokio::test(start_paused = true)]
async fn requests_are_pending_during_the_store_call() {
    let slow = Timing::After(Duration::from_millis(50));
    let slow = FaultyStore::new(MemoryStore::new(), slow);
    let engine = Engine::on(StoreHandle::shared(slow));
    let rules = Rules::none().backpressure(10).organization(bucket(100_000, 1));
    let admission = Admission::new(&engine, rules).unwrap();
    let tasks: Vec<_> = (0..1_000)
        .map(|_| {
            let admission = admission.clone();
            tokio::spawn(async move {
                let result = admission.admit(Caller::new().organization("acme")).await.unwrap();
                let Some(admitted) = result.admitted() else { return 0 };
                let _pending = admitted.into_in_flight();
                tokio::time::sleep(Duration::from_secs(10)).await;
                1
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    assert_eq!(admitted, 11, "at once, with a threshold of 10");
    assert_eq!(admission.pending(), 0);
    // A request that was abandoned during the store call is not pending either.
    let abandoned = admission.admit(Caller::new().organization("acme"));
    assert!(tokio::time::timeout(Duration::from_millis(1), abandoned.into_future()).await.is_err());
    assert_eq!(admission.pending(), 0);
}

/// Two concurrent reports: the number of one never gets the expiry of the other.
#[test]
fn a_reported_count_keeps_its_own_expiry() {
    let admission = Admission::new(&Engine::new(), Rules::default()).unwrap();
    let (rounds, arrived) = (30_000_u32, AtomicU32::new(0));
    let meet = |round: u32| {
        arrived.fetch_add(1, Ordering::SeqCst);
        while arrived.load(Ordering::SeqCst) < 2 * (round + 1) {
            std::thread::yield_now();
        }
    };
    let mut wrong = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..rounds {
                meet(2 * round);
                admission.set_pending(1_000, Duration::ZERO);
                meet(2 * round + 1);
            }
        });
        for round in 0..rounds {
            meet(2 * round);
            admission.set_pending(5, Duration::from_secs(3_600));
            meet(2 * round + 1);
            wrong += u32::from(admission.pending() == 1_000);
        }
    });
    assert_eq!(wrong, 0, "an expired number must not stay for an hour");
}
