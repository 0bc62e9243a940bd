//! Back-pressure: counted here, told from outside, and never a reason to touch a bucket.

use std::time::Duration;

use tidegate::Retry;
use tidegate::admission::{Caller, Pass, Reason, Rules, Tier};

use super::{Door, of};

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
        let rejection = door.admission.admit(Caller::new()).now().rejected().unwrap();
        assert_eq!(rejection.retry, Retry::After(Duration::from_millis(hint)), "{pending}");
        assert_eq!((rejection.tier, rejection.reason), (Tier::Backpressure, Reason::QueueDepth));
        assert_eq!(rejection.id, None);
        assert_eq!(rejection.reason.as_str(), "queue_depth");
    }
}

#[test]
fn passes_count_themselves_until_they_are_dropped() {
    let door = Door::with(Rules::default().backpressure(2));
    let admit = || door.admission.admit(Caller::new()).now().admitted();
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
    let keys = door.admission.limiter(Tier::Client).unwrap().engine().store().len();
    door.admission.set_pending(500, SHORT);
    for _ in 0..50 {
        assert_eq!(door.rejecting(alice), Some(Tier::Backpressure));
        assert_eq!(door.rejecting(of("new", "comer")), Some(Tier::Backpressure));
    }
    assert_eq!(door.left(Tier::Client, alice), 99);
    assert_eq!(door.left(Tier::Organization, alice), 999);
    assert_eq!(door.admission.limiter(Tier::Client).unwrap().engine().store().len(), keys);
    assert_eq!(door.admission.tally(Tier::Backpressure).rejected, 100);
}

/// A write is checked before it is queued: what was rejected has never been in the queue.
#[test]
fn a_rejected_write_never_reaches_the_queue() {
    let door = Door::with(Rules::default().backpressure(3));
    let mut queue = Vec::new();
    for write in 0..10 {
        if let Some(pass) = door.admission.admit(of("acme", "alice")).now().admitted() {
            queue.push((write, pass));
        }
    }
    let queued: Vec<_> = queue.iter().map(|(write, _)| *write).collect();
    assert_eq!(queued, [0, 1, 2, 3], "while three are pending a fourth is let in, a fifth is not");
}
