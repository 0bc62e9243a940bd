//! Concurrency limits: slots that are released, renewed, or expire.

use std::time::Duration;

use tidegate_core::{
    Charge, Correction, Limit, Operation, Policy, ReceiptError, Retry, StoreError, Target,
};

use super::test_store::{SECOND, TestStore, bucket, named};
use crate::subject::Subject;

fn calls(slots: u64, lease: Option<Duration>) -> Limit {
    named("calls", Policy::concurrency(slots, lease).expect("a valid policy"))
}

/// A slot is free again after its release, and is released only once.
pub async fn a_slot_is_released_once(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), calls(2, None));
    store.at(0).await;
    let first = store.spend(&[Charge::new(&limit, "a", 1)]).await;
    assert_eq!((first.outcomes[0].remaining, first.outcomes[0].reset), (1, None));
    store.spend(&[Charge::new(&limit, "a", 1)]).await;
    store.at(1_000_000).await;
    assert_eq!(store.take_from(&limit, "a", 1).await.retry(), Some(Retry::OnRelease));
    assert_eq!(store.take_from(&limit, "a", 3).await.retry(), Some(Retry::Never));
    assert_eq!(store.release(&limit, "a", &first.receipt).await, 1);
    assert_eq!(store.release(&limit, "a", &first.receipt).await, 0, "it is not held any more");
    assert_eq!(store.take_from(&limit, "a", 1).await.remaining(), 0);
    assert_eq!(store.remaining(&limit, "b").await, 2);
}

/// Several slots are taken and released together.
pub async fn several_slots_are_released_together(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), calls(5, None));
    store.at(0).await;
    let grant = store.spend(&[Charge::new(&limit, "a", 3)]).await;
    assert_eq!(store.take_from(&limit, "a", 3).await.retry(), Some(Retry::OnRelease));
    assert_eq!(store.release(&limit, "a", &grant.receipt).await, 3);
    assert_eq!(store.remaining(&limit, "a").await, 5);
}

/// A settlement can return slots of a lease, but cannot take more.
pub async fn settlement_charges_no_slots(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), calls(5, None));
    store.at(0).await;
    let receipt = store.spend(&[Charge::new(&limit, "a", 3)]).await.receipt;
    let settled = store.settle(&[Correction::new(&limit, "a", 2)], None).await;
    assert_eq!((settled.applied[0], settled.saturated), (0, 1));
    let settled = store.settle(&[Correction::new(&limit, "a", 1)], Some(&receipt)).await;
    assert_eq!((settled.applied[0], settled.outcomes[0].remaining), (0, 2));
    let settled = store.settle(&[Correction::new(&limit, "a", -1)], Some(&receipt)).await;
    assert_eq!((settled.applied[0], settled.outcomes[0].remaining), (-1, 3));
    assert_eq!(store.release(&limit, "a", &receipt).await, 2);
    assert_eq!(store.remaining(&limit, "a").await, 5);
}

/// A lease that is not renewed expires, and the retry hint says when.
pub async fn a_lease_runs_out(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), calls(1, Some(10 * SECOND)));
    store.at(0).await;
    let grant = store.spend(&[Charge::new(&limit, "a", 1)]).await;
    store.at(4_000).await;
    assert_eq!(store.take_from(&limit, "a", 1).await.retry(), Some(Retry::After(6 * SECOND)));
    store.at(10_000).await;
    assert!(store.take_from(&limit, "a", 1).await.is_allowed(), "as the hint said");
    assert_eq!(store.release(&limit, "a", &grant.receipt).await, 0, "another holds it now");
    assert!(!store.take_from(&limit, "a", 1).await.is_allowed());
}

/// A renewed lease starts over; an expired one cannot be renewed.
pub async fn a_lease_is_renewed(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), calls(1, Some(10 * SECOND)));
    store.at(0).await;
    let grant = store.spend(&[Charge::new(&limit, "a", 1)]).await;
    store.at(9_000).await;
    assert_eq!(store.renew(&limit, "a", &grant.receipt).await, 1);
    store.at(18_000).await;
    assert_eq!(store.take_from(&limit, "a", 1).await.retry(), Some(Retry::After(SECOND)));
    store.at(20_000).await;
    assert_eq!(store.renew(&limit, "a", &grant.receipt).await, 0);
    assert!(store.take_from(&limit, "a", 1).await.is_allowed());
}

/// Rate and slots can share a list; a release returns the slots but not the tokens.
pub async fn rate_and_slots_are_one_list(subject: &dyn Subject) {
    let (store, limit, client) = (TestStore(subject), calls(1, None), bucket("client", 1, 10));
    store.at(0).await;
    let list = [Charge::new(&client, "a", 4), Charge::new(&limit, "a", 1)];
    let grant = store.spend(&list).await;
    let decision = store.take(&list).await;
    assert_eq!((decision.binding(), decision.retry()), (1, Some(Retry::OnRelease)));
    assert_eq!(store.remaining(&client, "a").await, 6, "no token without a slot");
    let targets = list.map(|charge| charge.target);
    let release = Operation::Release { targets: &targets, receipt: &grant.receipt };
    let answer = store.execute(release).await;
    assert_eq!(answer, tidegate_core::StoreResponse::Slots(1));
    assert_eq!(store.remaining(&client, "a").await, 6);
    assert!(store.take(&list).await.is_allowed());
    let decision = store.take(&[Charge::new(&client, "a", 9), list[1]]).await;
    assert_eq!(decision.retry(), Some(Retry::OnRelease), "an unknown wait is the longer one");
}

/// A receipt for other slots is refused.
pub async fn a_release_checks_its_receipt(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), calls(1, None));
    store.at(0).await;
    let grant = store.spend(&[Charge::new(&limit, "a", 1)]).await;
    let targets = [Target::new(&limit, "b")];
    let release = Operation::Release { targets: &targets, receipt: &grant.receipt };
    match store.error(release).await {
        StoreError::Receipt(error) => assert_eq!(error, ReceiptError::Mismatch),
        other => panic!("{other:?} instead of a mismatch"),
    }
    assert_eq!(store.remaining(&limit, "a").await, 0);
}

/// A reset frees the slots; releasing an earlier receipt has no effect.
pub async fn a_reset_frees_the_slots(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), calls(2, None));
    store.at(0).await;
    let old = store.spend(&[Charge::new(&limit, "a", 2)]).await;
    assert!(store.reset(Target::new(&limit, "a")).await);
    store.spend(&[Charge::new(&limit, "a", 2)]).await;
    assert_eq!(store.release(&limit, "a", &old.receipt).await, 0);
    assert_eq!(store.remaining(&limit, "a").await, 0);
}
