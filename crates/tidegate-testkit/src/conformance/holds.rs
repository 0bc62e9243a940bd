//! Holds: a key is closed until an instant, then reopens empty and refills at its rate.

use tidegate_core::{Charge, Correction, Policy, Retry};

use super::test_store::{SECOND, TestStore, bucket, named};
use crate::subject::Subject;

/// A held key is denied until the hold ends, then refills one token at a time.
pub async fn a_held_key_reopens_empty_and_paced(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    assert_eq!(store.hold(&limit, "a", 5 * SECOND).await, 5 * SECOND);
    assert_eq!(store.take_from(&limit, "a", 1).await.retry(), Some(Retry::After(6 * SECOND)));
    let mut left = Vec::new();
    for second in [0, 4, 5, 6, 14, 15] {
        store.at(second * 1_000).await;
        left.push(store.remaining(&limit, "a").await);
    }
    assert_eq!(left, [0, 0, 0, 1, 9, 10]);
    assert_eq!(store.remaining(&limit, "b").await, 10, "other keys stay open");
}

/// A shorter hold does not shorten a longer one.
pub async fn the_longer_hold_applies(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    store.hold(&limit, "a", 10 * SECOND).await;
    store.at(1_000).await;
    assert_eq!(store.hold(&limit, "a", SECOND).await, 9 * SECOND);
    assert_eq!(store.hold(&limit, "a", 20 * SECOND).await, 20 * SECOND);
}

/// A refund does not reopen a held key, and the hold does not consume the refund.
pub async fn settlement_does_not_touch_a_hold(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    let grant = store.spend(&[Charge::new(&limit, "a", 10)]).await;
    store.hold(&limit, "a", 5 * SECOND).await;
    let back = [Correction::new(&limit, "a", -10)];
    let settlement = store.settle(&back, Some(&grant.receipt)).await;
    assert_eq!(settlement.outcomes[0].remaining, 0);
    store.at(7_000).await;
    assert_eq!(store.remaining(&limit, "a").await, 2);
}

/// A held bucket can be reserved for a time after the hold ends.
pub async fn a_reservation_waits_for_the_end_of_a_hold(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    store.hold(&limit, "a", 5 * SECOND).await;
    let decision = store.reserve(&[Charge::new(&limit, "a", 2)], 60 * SECOND).await;
    assert_eq!(decision.granted().map(|grant| grant.wait), Some(7 * SECOND));
}

/// One held key denies a list, and the other charges spend nothing.
pub async fn a_held_key_denies_its_list(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    let total = named("total", Policy::allowance(10).expect("a valid policy"));
    store.at(0).await;
    store.hold(&total, "a", 5 * SECOND).await;
    let list = [Charge::new(&limit, "a", 2), Charge::new(&total, "a", 1)];
    let decision = store.take(&list).await;
    assert_eq!((decision.binding(), decision.retry()), (1, Some(Retry::After(5 * SECOND))));
    assert_eq!(store.remaining(&limit, "a").await, 10);
    store.at(5_000).await;
    assert!(store.take(&list).await.is_allowed(), "a limit that does not refill reopens unchanged");
}
