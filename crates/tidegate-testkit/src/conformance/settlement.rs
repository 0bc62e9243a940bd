//! Settlement: refunds, additional charges, debt and its bound.

use tidegate_core::{Charge, Correction, Limit, Policy, Retry};

use super::test_store::{SECOND, TestStore, bucket, named};
use crate::subject::Subject;

async fn settle_one(store: TestStore<'_>, limit: &Limit, key: &str, delta: i64) -> (u64, usize) {
    let settlement = store.settle(&[Correction::new(limit, key, delta)], None).await;
    (settlement.outcomes[0].remaining, settlement.saturated)
}

/// A refund never fills a bucket beyond its capacity.
pub async fn a_refund_stops_at_full(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    let grant = store.spend(&[Charge::new(&limit, "a", 6)]).await;
    let back = [Correction::new(&limit, "a", -2)];
    let settlement = store.settle(&back, Some(&grant.receipt)).await;
    assert_eq!(settlement.outcomes[0].remaining, 6);
    assert_eq!(settle_one(store, &limit, "a", -50).await, (10, 0));
    assert_eq!(settle_one(store, &limit, "fresh", -50).await, (10, 0));
    assert!(store.take_from(&limit, "a", 10).await.is_allowed());
    assert!(!store.take_from(&limit, "a", 1).await.is_allowed());
}

/// An additional charge may create debt, which the refill pays off.
pub async fn a_settlement_may_go_into_debt(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    assert!(store.take_from(&limit, "a", 8).await.is_allowed());
    assert_eq!(settle_one(store, &limit, "a", 7).await, (0, 0));
    assert_eq!(store.take_from(&limit, "a", 1).await.retry(), Some(Retry::After(6 * SECOND)));
    store.at(6_000).await;
    assert!(store.take_from(&limit, "a", 1).await.is_allowed());
}

/// A settlement beyond the maximum debt saturates and reports it.
pub async fn debt_has_a_bound(subject: &dyn Subject) {
    let store = TestStore(subject);
    let policy = Policy::per_second(1).capacity(10).max_debt(3).build();
    let limit = named("client", policy.expect("a valid policy"));
    store.at(0).await;
    assert_eq!(settle_one(store, &limit, "a", 13).await, (0, 0));
    assert_eq!(settle_one(store, &limit, "a", 1).await, (0, 1));
    assert_eq!(settle_one(store, &limit, "b", i64::MAX).await, (0, 1));
    for key in ["a", "b"] {
        let retry = store.take_from(&limit, key, 1).await.retry();
        assert_eq!(retry, Some(Retry::After(4 * SECOND)), "{key}");
    }
    assert_eq!(settle_one(store, &limit, "b", i64::MIN).await, (10, 0));
}

/// Each correction of a list has an outcome, and corrections that hit a bound are counted.
pub async fn a_list_is_settled_together(subject: &dyn Subject) {
    let store = TestStore(subject);
    let (client, tokens) = (bucket("client", 1, 10), bucket("tokens", 1, 100));
    store.at(0).await;
    let list = [Charge::new(&client, "a", 5), Charge::new(&tokens, "a", 40)];
    let grant = store.spend(&list).await;
    let corrections = [Correction::new(&client, "a", 90), Correction::new(&tokens, "a", -15)];
    let settlement = store.settle(&corrections, Some(&grant.receipt)).await;
    let left: Vec<u64> = settlement.outcomes.iter().map(|outcome| outcome.remaining).collect();
    assert_eq!((left, settlement.saturated, settlement.dropped), (vec![0, 75], 1, 0));
}
