//! The store as a whole: the vectors, and callers at the same time.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use super::stage::{Stage, bucket};
use crate::scenario::vectors;
use crate::subject::Subject;

/// R294: every vector that the clock can show.
pub async fn the_vectors_hold(subject: &dyn Subject) {
    if let Err(difference) = vectors::run_all(subject).await {
        panic!("{difference}");
    }
}

/// R150, R178, R285, R291: fifteen at the same time on ten tokens: exactly ten.
pub async fn fifteen_at_once_on_ten(subject: &dyn Subject) {
    let (stage, limit) = (Stage(subject), bucket("client", 1, 10));
    stage.at(0).await;
    let takes = (0..15).map(|_| stage.take_of(&limit, "a", 1)).collect();
    let decisions = together(takes).await;
    let allowed = decisions.iter().filter(|decision| decision.is_allowed()).count();
    assert_eq!(allowed, 10);
}

/// Two at the same time on the last token: exactly one.
pub async fn two_at_once_on_the_last_token(subject: &dyn Subject) {
    let (stage, limit) = (Stage(subject), bucket("client", 1, 10));
    for round in 0..20 {
        stage.at(round * 10_000).await;
        assert!(stage.take_of(&limit, "a", 9).await.is_allowed(), "round {round}");
        let decisions =
            together(vec![stage.take_of(&limit, "a", 1), stage.take_of(&limit, "a", 1)]);
        let allowed = decisions.await.iter().filter(|decision| decision.is_allowed()).count();
        assert_eq!(allowed, 1, "round {round}");
    }
}

/// Polls all futures in turn until each is done.
async fn together<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<Pin<Box<_>>> = futures.into_iter().map(Box::pin).collect();
    let mut done = Vec::new();
    poll_fn(move |context| {
        waiting.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Ready(value) => {
                done.push(value);
                false
            }
            Poll::Pending => true,
        });
        if waiting.is_empty() { Poll::Ready(std::mem::take(&mut done)) } else { Poll::Pending }
    })
    .await
}
