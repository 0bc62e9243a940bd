//! The store as a whole: the vectors, and concurrent callers.

use super::test_store::{TestStore, bucket};
use crate::scenario::vectors;
use crate::subject::{Subject, together};

/// R294: runs every vector whose resolution the clock supports.
pub async fn the_vectors_pass(subject: &dyn Subject) {
    match vectors::run_all(subject).await {
        Ok(count) => assert!(count > 0, "no vector suits the clock and the contract of the store"),
        Err(difference) => panic!("{difference}"),
    }
}

/// R150, R178, R285, R291: of fifteen concurrent takes on ten tokens, exactly ten are allowed.
pub async fn ten_tokens_admit_ten_of_fifteen_concurrent_takes(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    let takes = (0..15).map(|_| store.take_from(&limit, "a", 1)).collect();
    let decisions = together(takes).await;
    let allowed = decisions.iter().filter(|decision| decision.is_allowed()).count();
    assert_eq!(allowed, 10);
}

/// Of two concurrent takes on the last token, exactly one is allowed.
pub async fn one_of_two_concurrent_takes_gets_the_last_token(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    for round in 0..20 {
        store.at(round * 10_000).await;
        assert!(store.take_from(&limit, "a", 9).await.is_allowed(), "round {round}");
        let decisions =
            together(vec![store.take_from(&limit, "a", 1), store.take_from(&limit, "a", 1)]);
        let allowed = decisions.await.iter().filter(|decision| decision.is_allowed()).count();
        assert_eq!(allowed, 1, "round {round}");
    }
}
