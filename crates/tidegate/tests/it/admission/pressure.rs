//! Back-pressure: counted here, told from outside, and never a reason to touch a bucket.

use std::future::IntoFuture as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate::admission::{Admission, Caller, Pass, Rules, Tier};
use tidegate::{Engine, MemoryStore, Retry, StoreHandle};
use tidegate_testkit::faulty_store::{FaultyStore, Timing};

use super::{Door, bucket, of};

const SHORT: Duration = Duration::from_secs(1);

#[test]
fn the_threshold_itself_still_gets_in() {
    let door = Door::with(Rules::default());
    for (pending, admitted) in [(0, true), (99, true), (100, true), (101, false), (102, false)] {
        door.admission.set_pending(pending, SHORT);
        assert_eq!(door.admits(Caller::new()), admitted, "{pending}");
        assert_eq!(door.admission.pending(), pending);
    }
}

#[test]
fn the_hint_grows_with_what_is_pending() {
    let door = Door::with(Rules::default().backpressure(50));
    for (pending, hint) in [(51, 10), (60, 100), (549, 4_990), (1_000, 5_000), (u32::MAX, 5_000)] {
        door.admission.set_pending(pending, SHORT);
        let rejection = door.admission.admit(Caller::new()).now().unwrap().rejected().unwrap();
        assert_eq!(rejection.retry, Retry::After(Duration::from_millis(hint)), "{pending}");
        assert_eq!((rejection.tier, rejection.tier.reason()), (Tier::Backpressure, "queue_depth"));
        assert_eq!(rejection.id, None);
        assert_eq!(rejection.tier.reason(), "queue_depth");
    }
}

#[test]
fn passes_count_themselves_until_they_are_dropped() {
    let door = Door::with(Rules::default().backpressure(2));
    let admit = || door.admission.admit(Caller::new()).now().unwrap().admitted();
    let mut passes: Vec<_> = (0..3).map(|_| admit().unwrap()).collect();
    assert_eq!(door.admission.pending(), 3);
    assert!(admit().is_none());
    passes.pop();
    passes.push(admit().unwrap());
    let guards: Vec<_> = passes.into_iter().map(Pass::into_in_flight).collect();
    assert_eq!(door.admission.pending(), 3, "the guard alone is enough");
    drop(guards);
    assert_eq!(door.admission.pending(), 0);
}

#[test]
fn what_was_told_expires_and_what_is_counted_does_not() {
    let door = Door::with(Rules::default().backpressure(5));
    door.admission.set_pending(1_000, SHORT);
    let guards: Vec<_> = (0..6).map(|_| door.admission.enter()).collect();
    assert_eq!(door.admission.pending(), 1_000, "not added: it is the same work seen twice");
    door.clock.advance(SHORT - Duration::from_nanos(1));
    assert_eq!(door.admission.pending(), 1_000);
    door.clock.advance(Duration::from_nanos(1));
    assert_eq!(door.admission.pending(), 6);
    assert_eq!(door.rejecting(Caller::new()), Some(Tier::Backpressure));
    drop(guards);
    assert!(door.admits(Caller::new()));
    door.admission.set_pending(7, SHORT);
    assert!(!door.admits(Caller::new()), "told anew");
    door.admission.set_pending(0, SHORT);
    assert!(door.admits(Caller::new()));
}

#[test]
fn a_rejection_by_pressure_touches_no_bucket() {
    let door = Door::with(Rules::default());
    let alice = of("acme", "alice");
    assert!(door.admits(alice));
    let keys =
        door.admission.limiter(Tier::Client).unwrap().engine().store().local().unwrap().len();
    door.admission.set_pending(500, SHORT);
    for _ in 0..50 {
        assert_eq!(door.rejecting(alice), Some(Tier::Backpressure));
        assert_eq!(door.rejecting(of("new", "comer")), Some(Tier::Backpressure));
    }
    assert_eq!(door.left(Tier::Client, alice), 99);
    assert_eq!(door.left(Tier::Organization, alice), 999);
    assert_eq!(
        door.admission.limiter(Tier::Client).unwrap().engine().store().local().unwrap().len(),
        keys
    );
    assert_eq!(door.admission.rejected(Tier::Backpressure), 100);
}

/// A write is checked before it is queued: what was rejected has never been in the queue.
#[test]
fn a_rejected_write_never_reaches_the_queue() {
    let door = Door::with(Rules::default().backpressure(3));
    let mut queue = Vec::new();
    for write in 0..10 {
        if let Some(pass) = door.admission.admit(of("acme", "alice")).now().unwrap().admitted() {
            queue.push((write, pass));
        }
    }
    let queued: Vec<_> = queue.iter().map(|(write, _)| *write).collect();
    assert_eq!(queued, [0, 1, 2, 3], "while three are pending a fourth is let in, a fifth is not");
}

/// Requests were counted only when the store had answered: as long as it was slow nobody was
/// pending, and everybody got in.
#[tokio::test(start_paused = true)]
async fn requests_are_pending_while_the_store_is_asked() {
    let slow = Timing::After(Duration::from_millis(50));
    let slow = FaultyStore::new(MemoryStore::new(), slow);
    let engine = Engine::on(StoreHandle::shared(slow));
    let rules = Rules::none().backpressure(10).organization(bucket(100_000, 1));
    let admission = Admission::new(&engine, rules).unwrap();
    let tasks: Vec<_> = (0..1_000)
        .map(|_| {
            let admission = admission.clone();
            tokio::spawn(async move {
                let verdict = admission.admit(Caller::new().organization("acme")).await.unwrap();
                let Some(pass) = verdict.admitted() else { return 0 };
                let _pending = pass.into_in_flight();
                tokio::time::sleep(Duration::from_secs(10)).await;
                1
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    assert_eq!(admitted, 11, "at a time, with a threshold of 10");
    assert_eq!(admission.pending(), 0);
    // Nor is anybody pending who gave up while the store was asked.
    let asked = admission.admit(Caller::new().organization("acme"));
    assert!(tokio::time::timeout(Duration::from_millis(1), asked.into_future()).await.is_err());
    assert_eq!(admission.pending(), 0);
}

/// Two who tell at a time: the number of one is never good for as long as that of the other.
#[test]
fn a_number_is_good_for_as_long_as_its_own_sender_said() {
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
    assert_eq!(wrong, 0, "a number that had expired when it was told stays for an hour");
}
