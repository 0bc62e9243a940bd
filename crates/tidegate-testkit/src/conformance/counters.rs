//! Calendar quotas and allowances.

use tidegate_core::{
    Charge, ChargeError, Correction, Limit, Operation, Policy, Retry, StoreError, Target, Windows,
};

use super::test_store::{SECOND, TestStore, bucket, named};
use crate::scenario::replay::windows;
use crate::scenario::step::ORIGIN_NS;
use crate::subject::Subject;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

fn daily(amount: u64) -> Limit {
    named("daily", Policy::quota(amount).expect("a valid policy"))
}

/// The windows around `millis` after the start.
fn days_around(millis: u64) -> Windows {
    windows(86_400, ORIGIN_NS + millis * 1_000_000)
}

fn charge(limit: &Limit, cost: u64, around: Windows) -> [Charge<'_>; 1] {
    [Charge { target: Target::new(limit, "a").with_windows(around), cost }]
}

/// A quota counts within its window and starts over with the next one.
pub async fn a_quota_counts_by_window(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), daily(5));
    store.at(HOUR).await;
    let today = days_around(HOUR);
    let decision = store.take(&charge(&limit, 3, today)).await;
    assert_eq!((decision.is_allowed(), decision.remaining()), (true, 2));
    assert_eq!(decision.outcomes()[0].reset, Some(23 * 3_600 * SECOND));
    let retry = store.take(&charge(&limit, 3, today)).await.retry();
    assert_eq!(retry, Some(Retry::After(23 * 3_600 * SECOND)), "when the window ends");
    assert_eq!(store.take(&charge(&limit, 6, today)).await.retry(), Some(Retry::Never));
    store.at(DAY).await;
    assert_eq!(store.take(&charge(&limit, 3, days_around(DAY))).await.remaining(), 2);
}

/// The store selects the window by its own clock, not by the caller's.
pub async fn the_store_picks_the_window(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), daily(5));
    store.at(DAY - HOUR).await;
    assert_eq!(store.take(&charge(&limit, 3, days_around(DAY))).await.remaining(), 2);
    assert_eq!(store.take(&charge(&limit, 1, days_around(0))).await.remaining(), 1);
    store.at(DAY).await;
    assert_eq!(store.take(&charge(&limit, 1, days_around(0))).await.remaining(), 4);
    // Slightly back across the boundary: use in the later window still counts.
    store.at(DAY - 1).await;
    assert_eq!(store.take(&charge(&limit, 1, days_around(0))).await.remaining(), 3);
}

/// Windows are required, and must contain the store's time.
pub async fn windows_are_checked(subject: &dyn Subject) {
    let (store, limit, client) = (TestStore(subject), daily(5), bucket("client", 1, 10));
    store.at(0).await;
    let assert_refused = |error: StoreError, expected: ChargeError| match error {
        StoreError::Charge(error) => assert_eq!(error, expected),
        other => panic!("{other:?} instead of {expected:?}"),
    };
    let list = [Charge::new(&client, "a", 1), Charge::new(&limit, "a", 1)];
    assert_refused(store.error(Operation::Take(&list)).await, ChargeError::NoWindows(1));
    let far = charge(&limit, 1, days_around(9 * DAY));
    assert_refused(store.error(Operation::Take(&far)).await, ChargeError::OtherWindows(0));
    // Errors name the place in the list as it was given: two charges on one bucket, or on buckets
    // that a store may keep in different places.
    for other in ["a", "b", "c"] {
        let [first, second] = ["a", other].map(|key| Charge::new(&client, key, 1));
        let error = store.error(Operation::Take(&[first, second, list[1]])).await;
        assert_refused(error, ChargeError::NoWindows(2));
        let error = store.error(Operation::Take(&[first, second, far[0]])).await;
        assert_refused(error, ChargeError::OtherWindows(2));
    }
    assert_eq!(store.remaining(&client, "a").await, 10, "nothing was spent");
}

/// A refund for an earlier window is dropped; one for this window counts.
pub async fn a_refund_for_an_earlier_window_is_dropped(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), daily(5));
    store.at(0).await;
    let receipt = store.spend(&charge(&limit, 4, days_around(0))).await.receipt;
    let back = |around| {
        let target = Target::new(&limit, "a").with_windows(around);
        [Correction { target, delta: -1 }]
    };
    let settlement = store.settle(&back(days_around(0)), Some(&receipt)).await;
    assert_eq!((settlement.dropped, settlement.outcomes[0].remaining), (0, 2));
    store.at(DAY).await;
    assert!(store.take(&charge(&limit, 1, days_around(DAY))).await.is_allowed());
    let settlement = store.settle(&back(days_around(DAY)), Some(&receipt)).await;
    assert_eq!((settlement.dropped, settlement.outcomes[0].remaining), (1, 4));
}

/// A reservation never books a later window.
pub async fn a_reservation_stays_in_its_window(subject: &dyn Subject) {
    let (store, limit, client) = (TestStore(subject), daily(5), bucket("client", 1, 10));
    store.at(DAY - 5_000).await;
    assert!(store.take_from(&client, "a", 10).await.is_allowed());
    let list = |tokens| {
        let [quota] = charge(&limit, 1, days_around(DAY - 5_000));
        [quota, Charge::new(&client, "a", tokens)]
    };
    assert!(!store.reserve(&list(5), 60 * SECOND).await.is_allowed(), "midnight is too late");
    assert!(store.reserve(&list(4), 60 * SECOND).await.is_allowed());
}

/// An allowance does not refill; only a reset or a refund restores it.
pub async fn an_allowance_does_not_refill(subject: &dyn Subject) {
    let store = TestStore(subject);
    let limit = named("total", Policy::allowance(5).expect("a valid policy"));
    store.at(0).await;
    let decision = store.take_from(&limit, "a", 4).await;
    assert_eq!((decision.remaining(), decision.outcomes()[0].reset), (1, None));
    store.at(1_000 * DAY).await;
    let decision = store.take_from(&limit, "a", 2).await;
    assert_eq!((decision.remaining(), decision.retry()), (1, Some(Retry::Never)));
    assert!(store.reset(Target::new(&limit, "a")).await);
    assert_eq!(store.take_from(&limit, "a", 5).await.remaining(), 0);
    let settlement = store.settle(&[Correction::new(&limit, "a", -2)], None).await;
    assert_eq!(settlement.outcomes[0].remaining, 2);
}
