//! Reservations: spend now or at a stated time, and refund what no later reservation depends on.

use std::time::Duration;

use tidegate_core::{Charge, Correction, Decision, Grant, Limit, Policy, Retry};

use super::test_store::{SECOND, TestStore, bucket, named};
use super::transcript::Summary;
use crate::subject::Subject;

async fn must_reserve(store: TestStore<'_>, charges: &[Charge<'_>], horizon: Duration) -> Grant {
    match store.reserve(charges, horizon).await {
        Decision::Allowed(grant) => grant,
        other => panic!("expected a reservation, got: {}", Summary(&other)),
    }
}

async fn emptied_limit(store: TestStore<'_>) -> Limit {
    let limit = bucket("client", 1, 10);
    store.at(0).await;
    assert!(store.take_from(&limit, "a", 10).await.is_allowed());
    limit
}

/// A reservation starts when its tokens are available, and later ones queue behind it.
pub async fn reservations_queue(subject: &dyn Subject) {
    let store = TestStore(subject);
    let limit = emptied_limit(store).await;
    let charge = [Charge::new(&limit, "a", 3)];
    for wait in [3, 6, 9] {
        let grant = must_reserve(store, &charge, 60 * SECOND).await;
        assert_eq!((grant.wait, grant.outcomes[0].remaining), (wait * SECOND, 0));
    }
    let retry = store.take_from(&limit, "a", 1).await.retry();
    assert_eq!(retry, Some(Retry::After(10 * SECOND)), "a take does not overtake reservations");
}

/// What fits now starts now.
pub async fn what_fits_now_starts_now(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    let grant = must_reserve(store, &[Charge::new(&limit, "a", 10)], Duration::ZERO).await;
    assert_eq!(grant.wait, Duration::ZERO);
}

/// A reservation beyond the caller's or the policy's horizon is denied and spends nothing.
pub async fn the_shorter_horizon_applies(subject: &dyn Subject) {
    let store = TestStore(subject);
    let limit = emptied_limit(store).await;
    let charge = [Charge::new(&limit, "a", 3)];
    let decision = store.reserve(&charge, 2 * SECOND).await;
    assert_eq!(decision.retry(), Some(Retry::After(3 * SECOND)));
    let policy = Policy::per_second(1).capacity(10).max_horizon(2 * SECOND).build();
    let near = named("near", policy.expect("a valid policy"));
    assert!(store.take_from(&near, "a", 10).await.is_allowed());
    let near_three = [Charge::new(&near, "a", 3)];
    assert!(!store.reserve(&near_three, 60 * SECOND).await.is_allowed());
    // A charge of zero does not shorten the horizon of the others.
    let list = [Charge::new(&limit, "a", 3), Charge::new(&near, "a", 0)];
    assert_eq!(must_reserve(store, &list, 60 * SECOND).await.wait, 3 * SECOND);
}

/// Every bucket of the list is charged as of the common start.
pub async fn a_list_starts_together(subject: &dyn Subject) {
    let store = TestStore(subject);
    let (slow, fast) = (emptied_limit(store).await, bucket("fast", 1, 4));
    let list = [Charge::new(&fast, "a", 4), Charge::new(&slow, "a", 5)];
    assert_eq!(must_reserve(store, &list, 60 * SECOND).await.wait, 5 * SECOND);
    // Full until the start, then empty: four tokens are back four seconds after it.
    assert_eq!(store.take_from(&fast, "a", 4).await.retry(), Some(Retry::After(9 * SECOND)));
    store.at(9_000).await;
    assert!(store.take_from(&fast, "a", 4).await.is_allowed());
}

/// Cancelling the last reservation before its start refunds everything.
pub async fn a_cancelled_reservation_is_given_back(subject: &dyn Subject) {
    let store = TestStore(subject);
    let limit = emptied_limit(store).await;
    let grant = must_reserve(store, &[Charge::new(&limit, "a", 5)], 60 * SECOND).await;
    store.at(1_000).await;
    let back = [Correction::new(&limit, "a", -5)];
    let settlement = store.settle(&back, Some(&grant.receipt)).await;
    assert_eq!((settlement.dropped, settlement.outcomes[0].remaining), (0, 1));
}

/// Tokens that a later reservation depends on are not refunded.
pub async fn a_refund_spares_later_reservations(subject: &dyn Subject) {
    let store = TestStore(subject);
    let limit = emptied_limit(store).await;
    let first = must_reserve(store, &[Charge::new(&limit, "a", 5)], 60 * SECOND).await;
    let second = must_reserve(store, &[Charge::new(&limit, "a", 2)], 60 * SECOND).await;
    assert_eq!(second.wait, 7 * SECOND);
    let back = [Correction::new(&limit, "a", -5)];
    let settlement = store.settle(&back, Some(&first.receipt)).await;
    // The second reservation depends on two of the five; three are refunded.
    assert_eq!((settlement.dropped, settlement.outcomes[0].reset), (0, Some(14 * SECOND)));
    let third = must_reserve(store, &[Charge::new(&limit, "a", 9)], 60 * SECOND).await;
    assert_eq!(third.wait, 13 * SECOND);
    let back = [Correction::new(&limit, "a", -2)];
    let settlement = store.settle(&back, Some(&second.receipt)).await;
    assert_eq!(settlement.dropped, 1, "the third depends on all of the second");
}

/// After its start a reservation is refunded like any spend.
pub async fn a_started_reservation_is_refunded_like_a_spend(subject: &dyn Subject) {
    let store = TestStore(subject);
    let limit = emptied_limit(store).await;
    let first = must_reserve(store, &[Charge::new(&limit, "a", 2)], 60 * SECOND).await;
    must_reserve(store, &[Charge::new(&limit, "a", 5)], 60 * SECOND).await;
    store.at(2_000).await;
    let settlement = store.settle(&[Correction::new(&limit, "a", -2)], Some(&first.receipt)).await;
    assert_eq!((settlement.dropped, settlement.outcomes[0].reset), (0, Some(13 * SECOND)));
}
