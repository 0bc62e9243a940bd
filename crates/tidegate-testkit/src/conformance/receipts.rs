//! Receipts: only the store that issued one accepts it, and only for the buckets it names.

use tidegate_core::{Charge, Correction, Limit, Operation, Receipt, ReceiptError, StoreError};

use super::test_store::{TestStore, bucket};
use crate::subject::Subject;

async fn assert_refused(
    store: TestStore<'_>,
    corrections: &[Correction<'_>],
    receipt: &Receipt,
    what: ReceiptError,
) {
    let settle = Operation::Settle { corrections, receipt: Some(receipt) };
    match store.error(settle).await {
        StoreError::Receipt(error) => assert_eq!(error, what),
        other => panic!("{other:?} instead of {what:?}"),
    }
}

async fn spend_six(store: TestStore<'_>) -> (Limit, Receipt) {
    let limit = bucket("client", 1, 10);
    store.at(0).await;
    let grant = store.spend(&[Charge::new(&limit, "a", 6)]).await;
    (limit, grant.receipt)
}

/// A receipt issued by another store, or before a restart, is refused.
pub async fn a_foreign_receipt_is_refused(subject: &dyn Subject) {
    let store = TestStore(subject);
    let (limit, receipt) = spend_six(store).await;
    let forged =
        Receipt::new(receipt.issuer() ^ 1, receipt.start(), receipt.charges().iter().copied());
    assert_refused(store, &[Correction::new(&limit, "a", -6)], &forged, ReceiptError::Issuer).await;
    assert_eq!(store.remaining(&limit, "a").await, 4, "nothing was changed");
}

/// A receipt for other buckets than the corrected ones is refused.
pub async fn a_receipt_names_its_buckets(subject: &dyn Subject) {
    let store = TestStore(subject);
    let (limit, receipt) = spend_six(store).await;
    let other = bucket("other", 1, 10);
    let mismatch = ReceiptError::Mismatch;
    assert_refused(store, &[Correction::new(&limit, "b", -6)], &receipt, mismatch).await;
    assert_refused(store, &[Correction::new(&other, "a", -6)], &receipt, mismatch).await;
    let two = [Correction::new(&limit, "a", -6), Correction::new(&limit, "b", -6)];
    assert_refused(store, &two, &receipt, mismatch).await;
    assert_eq!(store.remaining(&limit, "a").await, 4, "nothing was changed");
}

/// A receipt can be serialized and parsed.
pub async fn a_receipt_survives_serialization(subject: &dyn Subject) {
    let store = TestStore(subject);
    let (limit, receipt) = spend_six(store).await;
    let receipt = Receipt::from_bytes(&receipt.to_bytes()).expect("its own bytes");
    let settlement = store.settle(&[Correction::new(&limit, "a", -6)], Some(&receipt)).await;
    assert_eq!(settlement.outcomes[0].remaining, 10);
}

/// A receipt has one record per charge, also for merged charges.
pub async fn a_receipt_has_a_stamp_per_charge(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    let list = ["a", "b", "a"].map(|key| Charge::new(&limit, key, 1));
    let receipt = store.spend(&list).await.receipt;
    assert_eq!(receipt.charges().len(), 3);
    assert_eq!(receipt.charges()[0].bucket, receipt.charges()[2].bucket);
    assert_ne!(receipt.charges()[0].bucket, receipt.charges()[1].bucket);
}
