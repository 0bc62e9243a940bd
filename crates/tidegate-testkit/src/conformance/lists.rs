//! Lists of charges: all or nothing, merged, bounded.

use tidegate_core::{
    Charge, ChargeError, Correction, Key, KeyError, MAX_KEY_BYTES, Operation, Retry, StoreError,
    Target,
};

use super::test_store::{SECOND, TestStore, bucket};
use crate::subject::Subject;

/// R170, R413: if one charge does not fit, none is spent; the longest wait is reported.
pub async fn a_list_is_all_or_nothing(subject: &dyn Subject) {
    let store = TestStore(subject);
    let (client, organization) = (bucket("client", 1, 10), bucket("organization", 1, 5));
    store.at(0).await;
    assert!(store.take_from(&organization, "acme", 5).await.is_allowed());
    let list = [Charge::new(&client, "alice", 4), Charge::new(&organization, "acme", 3)];
    let decision = store.take(&list).await;
    assert_eq!(decision.retry(), Some(Retry::After(3 * SECOND)));
    assert_eq!(decision.binding(), 1);
    let shown = decision.outcomes();
    assert_eq!((shown[0].remaining, shown[0].retry), (10, None), "the first alone would fit");
    assert_eq!((shown[1].remaining, shown[1].retry), (0, Some(Retry::After(3 * SECOND))));
    assert_eq!(store.remaining(&client, "alice").await, 10, "the first charge was not spent");
    store.at(3_000).await;
    let decision = store.take(&list).await;
    assert!(decision.is_allowed());
    let left: Vec<u64> = decision.outcomes().iter().map(|outcome| outcome.remaining).collect();
    assert_eq!((left, decision.binding()), (vec![6, 0], 1));
}

/// `Never` is longer than any wait, and the first of equal waits is the binding one.
pub async fn the_longest_wait_binds(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    for key in ["a", "b"] {
        assert!(store.take_from(&limit, key, 10).await.is_allowed());
    }
    let list = ["c", "a", "b"].map(|key| Charge::new(&limit, key, 2));
    let decision = store.take(&list).await;
    assert_eq!((decision.binding(), decision.retry()), (1, Some(Retry::After(2 * SECOND))));
    let list = [Charge::new(&limit, "a", 9), Charge::new(&limit, "c", 11)];
    let decision = store.take(&list).await;
    assert_eq!((decision.binding(), decision.retry()), (1, Some(Retry::Never)));
}

/// Equal buckets in a list are charged once, with the sum.
pub async fn equal_buckets_are_merged(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    let list = |costs: [u64; 2]| costs.map(|cost| Charge::new(&limit, "a", cost));
    let decision = store.take(&list([6, 5])).await;
    assert_eq!(decision.retry(), Some(Retry::Never), "each cost fits, the sum does not");
    let decision = store.take(&list([u64::MAX, 2])).await;
    assert_eq!(decision.retry(), Some(Retry::Never), "the sum does not wrap around");
    let decision = store.take(&list([4, 3])).await;
    let left: Vec<u64> = decision.outcomes().iter().map(|outcome| outcome.remaining).collect();
    assert_eq!(left, [3, 3], "one outcome per charge, of the bucket after both");
    let decision = store.take(&list([2, 2])).await;
    assert_eq!(decision.retry(), Some(Retry::After(SECOND)));
    assert_eq!(decision.outcomes().len(), 2);
}

/// A charge of zero in a list denies nothing and spends nothing.
pub async fn a_zero_cost_in_a_list_only_reports(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    assert!(store.take_from(&limit, "empty", 10).await.is_allowed());
    let list = [Charge::new(&limit, "a", 4), Charge::new(&limit, "empty", 0)];
    let decision = store.take(&list).await;
    assert!(decision.is_allowed());
    let left: Vec<u64> = decision.outcomes().iter().map(|outcome| outcome.remaining).collect();
    assert_eq!((left, decision.binding()), (vec![6, 0], 1));
}

/// Sixteen charges are decided, seventeen and none are refused, and nothing is spent.
pub async fn lists_are_bounded(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    let keys: Vec<String> = (0..17).map(|number| format!("key-{number}")).collect();
    let charges: Vec<Charge<'_>> = keys.iter().map(|key| Charge::new(&limit, key, 1)).collect();
    let assert_refused = |error: &StoreError, expected: ChargeError| match error {
        StoreError::Charge(error) => assert_eq!(*error, expected),
        other => panic!("{other:?} instead of {expected:?}"),
    };
    for operation in [
        Operation::Take(&charges),
        Operation::Peek(&charges),
        Operation::Reserve { charges: &charges, horizon: SECOND },
    ] {
        assert_refused(&store.error(operation).await, ChargeError::TooMany(17));
    }
    for operation in [
        Operation::Take(&[]),
        Operation::Peek(&[]),
        Operation::Reserve { charges: &[], horizon: SECOND },
        Operation::Settle { corrections: &[], receipt: None },
    ] {
        assert_refused(&store.error(operation).await, ChargeError::Empty);
    }
    let corrections: Vec<Correction<'_>> =
        keys.iter().map(|key| Correction::new(&limit, key, 1)).collect();
    let settle = Operation::Settle { corrections: &corrections, receipt: None };
    assert_refused(&store.error(settle).await, ChargeError::TooMany(17));
    let decision = store.take(&charges[..16]).await;
    assert!(decision.is_allowed());
    assert!(decision.outcomes().iter().all(|outcome| outcome.remaining == 9));
    // Seventeen charges are refused even if they name one bucket.
    let same: Vec<Charge<'_>> = (0..17).map(|_| Charge::new(&limit, "same", 0)).collect();
    assert_refused(&store.error(Operation::Take(&same)).await, ChargeError::TooMany(17));
}

/// Every operation refuses an empty or overlong key, and spends nothing.
pub async fn keys_are_bounded(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    let (longest, too_long) = ("x".repeat(MAX_KEY_BYTES), "x".repeat(MAX_KEY_BYTES + 1));
    let bad = [
        (Key::new(""), KeyError::Empty),
        (Key::new("a").in_group(""), KeyError::Empty),
        (Key::new(&too_long), KeyError::TooLong),
        (Key::new("a").in_group(&too_long), KeyError::TooLong),
    ];
    for (key, expected) in bad {
        let target = Target::new(&limit, key);
        let charges = [Charge::new(&limit, "alice", 1), Charge { target, cost: 1 }];
        let corrections = [Correction::new(&limit, "alice", 1), Correction { target, delta: 1 }];
        let in_a_list = [
            Operation::Take(&charges),
            Operation::Peek(&charges),
            Operation::Reserve { charges: &charges, horizon: SECOND },
            Operation::Settle { corrections: &corrections, receipt: None },
        ];
        let alone = [
            Operation::Take(&charges[1..]),
            Operation::Hold { target, span: SECOND },
            Operation::Reset { target },
        ];
        let in_a_list = in_a_list.map(|operation| (1, operation));
        let alone = alone.map(|operation| (0, operation));
        for (index, operation) in in_a_list.into_iter().chain(alone) {
            let error = store.error(operation).await;
            let StoreError::Charge(ChargeError::Key(place, found)) = error else {
                panic!("{error:?} for a key that is {expected:?}");
            };
            assert_eq!((place, found), (index, expected));
        }
    }
    assert_eq!(store.remaining(&limit, "alice").await, 10, "nothing was spent");
    assert!(store.take_from(&limit, &longest, 1).await.is_allowed());
}

/// A batch is answered in order, and each operation sees the ones before it.
pub async fn a_batch_is_answered_in_order(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    let (six, none) = ([Charge::new(&limit, "a", 6)], []);
    let operations = [Operation::Take(&six), Operation::Take(&none), Operation::Take(&six)];
    let mut answers = tidegate_core::StoreResponses::new();
    subject.store().submit(&operations, &mut answers).await;
    assert_eq!(answers.len(), 3, "one answer each");
    let allowed = |index: usize| match &answers[index] {
        Ok(tidegate_core::StoreResponse::Decision(decision)) => decision.is_allowed(),
        other => panic!("{other:?} is not a decision"),
    };
    assert!(allowed(0));
    assert!(answers[1].is_err(), "an invalid operation fails alone");
    assert!(!allowed(2), "the first six were spent");
}
