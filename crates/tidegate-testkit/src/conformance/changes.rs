//! Policy changes: what happens to a bucket when its limit is revised.

use tidegate_core::{Charge, Correction, Limit, Policy, PolicyChange, Retry};

use super::test_store::{SECOND, TestStore, bucket, millis, named};
use crate::subject::Subject;

fn revised(limit: &Limit, per_second: u64, capacity: u64, change: PolicyChange) -> Limit {
    let policy = Policy::per_second(per_second).capacity(capacity).build();
    limit.revise(policy.expect("a valid policy"), change).expect("a named limit")
}

/// R427: tokens stay; a lower capacity caps them, a higher one adds none immediately.
pub async fn tokens_stay(subject: &dyn Subject) {
    let (store, old) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    assert_eq!(store.take_from(&old, "a", 2).await.remaining(), 8);
    assert_eq!(store.take_from(&old, "b", 7).await.remaining(), 3);
    let small = revised(&old, 1, 5, PolicyChange::KeepTokens);
    assert_eq!(store.take_from(&small, "a", 1).await.remaining(), 4);
    assert_eq!(store.take_from(&small, "b", 1).await.remaining(), 2);
    let large = revised(&small, 2, 100, PolicyChange::KeepTokens);
    assert_eq!(store.take_from(&large, "a", 1).await.remaining(), 3);
    store.at(1_000).await;
    assert_eq!(store.remaining(&large, "a").await, 5, "at the new rate");
    assert_eq!(store.remaining(&large, "never-seen").await, 100);
}

/// A proportional change keeps the filled share.
pub async fn the_filled_share_stays(subject: &dyn Subject) {
    let (store, old) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    assert_eq!(store.take_from(&old, "a", 4).await.remaining(), 6);
    let new = revised(&old, 1, 50, PolicyChange::Proportional);
    assert_eq!(store.remaining(&new, "a").await, 30);
}

/// A reset change starts every bucket full.
pub async fn every_bucket_starts_full(subject: &dyn Subject) {
    let (store, old) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    assert!(store.take_from(&old, "a", 10).await.is_allowed());
    let new = revised(&old, 1, 5, PolicyChange::Reset);
    assert_eq!(store.take_from(&new, "a", 1).await.remaining(), 4);
}

/// Debt is kept, up to the new bound.
pub async fn debt_stays(subject: &dyn Subject) {
    let (store, old) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    store.settle(&[Correction::new(&old, "a", 16)], None).await;
    let new = revised(&old, 1, 4, PolicyChange::KeepTokens);
    // Six below zero, capped at the new maximum debt of four, plus four tokens to full.
    let outcome = store.peek(&[Charge::new(&new, "a", 0)]).await.outcomes()[0];
    assert_eq!((outcome.remaining, outcome.reset), (0, Some(8 * SECOND)));
}

/// A policy change does not reopen a held key, and tokens refilled since it reopened stay.
pub async fn a_hold_survives_a_change(subject: &dyn Subject) {
    let (store, old) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    store.hold(&old, "a", 5 * SECOND).await;
    let new = revised(&old, 2, 10, PolicyChange::Reset);
    assert!(!store.take_from(&new, "a", 1).await.is_allowed());
    store.at(6_000).await;
    assert_eq!(store.take_from(&new, "a", 0).await.remaining(), 1, "it refills as before");
    assert_eq!(store.take_from(&new, "a", 1).await.remaining(), 0);
    store.at(7_000).await;
    assert_eq!(store.remaining(&new, "a").await, 2, "after a write, by the new policy");
}

/// A hold that has expired stays expired, whatever the limit becomes later.
pub async fn a_hold_that_has_passed_does_not_close_the_key_again(subject: &dyn Subject) {
    let (store, old) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    store.hold(&old, "a", 5 * SECOND).await;
    store.hold(&old, "b", 5 * SECOND).await;
    let hourly = Policy::per(1, 3_600 * SECOND).capacity(10).build().expect("a valid policy");
    let new = old.revise(hourly, PolicyChange::KeepTokens).expect("a named limit");
    store.at(9_000).await;
    assert_eq!(store.remaining(&new, "b").await, 4, "tokens refilled since the hold stay");
    assert_eq!(store.take_from(&new, "b", 1).await.remaining(), 3);
    assert_eq!(store.remaining(&new, "b").await, 3);
    store.at(100_000).await;
    assert_eq!(store.remaining(&new, "a").await, 10, "full before the change, full after it");
}

/// A denial moves a bucket to the new policy, so its retry hint holds for faster and slower rates.
pub async fn a_retry_hint_holds_after_a_change(subject: &dyn Subject) {
    let store = TestStore(subject);
    let hourly = Policy::per(1, 3_600 * SECOND).capacity(1).build().expect("a valid policy");
    let old = named("faster", hourly);
    store.at(0).await;
    assert!(store.take_from(&old, "a", 1).await.is_allowed());
    let new = revised(&old, 100, 1, PolicyChange::KeepTokens);
    assert_eq!(store.take_from(&new, "a", 1).await.retry(), Some(Retry::After(millis(10))));
    store.at(10).await;
    assert!(store.take_from(&new, "a", 1).await.is_allowed());

    let old = bucket("slower", 1_000, 1_000);
    store.at(1_000).await;
    assert!(store.take_from(&old, "a", 1_000).await.is_allowed());
    let new = revised(&old, 1, 1_000, PolicyChange::KeepTokens);
    let retry = store.take_from(&new, "a", 1_000).await.retry();
    assert_eq!(retry, Some(Retry::After(1_000 * SECOND)));
    store.at(2_000).await;
    assert!(
        !store.take_from(&new, "a", 2).await.is_allowed(),
        "one token was refilled, not a thousand"
    );
}

/// A caller with an older revision adopts the newer one that the bucket was written under.
pub async fn a_stale_caller_adopts_the_newer_revision(subject: &dyn Subject) {
    let (store, old) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    assert!(store.take_from(&old, "a", 1).await.is_allowed());
    let new = revised(&old, 1, 4, PolicyChange::KeepTokens);
    assert_eq!(store.take_from(&new, "a", 1).await.remaining(), 3);
    let decision = store.take_from(&old, "a", 1).await;
    assert_eq!((decision.remaining(), decision.outcomes()[0].capacity), (2, 4));
    assert!(!store.take_from(&old, "a", 5).await.is_allowed(), "above the newer capacity");
    assert_eq!(store.remaining(&new, "a").await, 2, "and nothing was converted back");
}

/// Counted policies keep what was used.
pub async fn counters_keep_what_was_used(subject: &dyn Subject) {
    let store = TestStore(subject);
    let allowance = |amount| Policy::allowance(amount).expect("a valid policy");
    let old = named("total", allowance(10));
    store.at(0).await;
    assert_eq!(store.take_from(&old, "a", 6).await.remaining(), 4);
    let revise = |limit: &Limit, amount| {
        limit.revise(allowance(amount), PolicyChange::KeepTokens).expect("a named limit")
    };
    let small = revise(&old, 5);
    assert!(!store.take_from(&small, "a", 1).await.is_allowed());
    let large = revise(&small, 20);
    assert_eq!(store.take_from(&large, "a", 1).await.remaining(), 13);
}

/// Cancelling a reservation made under another revision refunds nothing before its start.
pub async fn a_reservation_of_another_revision_is_dropped(subject: &dyn Subject) {
    let (store, old) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    assert!(store.take_from(&old, "a", 10).await.is_allowed());
    let decision = store.reserve(&[Charge::new(&old, "a", 4)], 60 * SECOND).await;
    let grant = decision.granted().expect("a reservation");
    // At twice the rate the bucket is full earlier than the receipt says. Comparing the two
    // instants would wrongly suggest that no later reservation depends on this one.
    let new = revised(&old, 2, 10, PolicyChange::KeepTokens);
    store.at(1_000).await;
    let back = [Correction::new(&new, "a", -4)];
    let settlement = store.settle(&back, Some(&grant.receipt)).await;
    assert_eq!(settlement.dropped, 1);
    assert_eq!(settlement.outcomes[0].reset, Some(millis(6_500)), "thirteen tokens are missing");
}
