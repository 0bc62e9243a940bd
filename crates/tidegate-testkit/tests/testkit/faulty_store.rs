//! The faulty store follows its behaviour, and otherwise answers like the wrapped store.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_core::{
    Charge, Decision, Limit, Operation, Policy, Store, StoreError, StoreResponse, StoreResponses,
    Submission,
};
use tidegate_testkit::faulty_store::{
    Behaviour, FaultyStore, OperationContext, OperationKind, Timing,
};
use tokio::time::Instant;

use crate::plain_store::PlainStore;

type Faulty = FaultyStore<PlainStore>;

const SECOND: Duration = Duration::from_secs(1);

fn store(behaviour: impl Into<Behaviour>) -> Arc<Faulty> {
    FaultyStore::new(PlainStore::new(), behaviour)
}

fn allowance(tokens: u64) -> Limit {
    let policy = Policy::allowance(tokens).expect("a valid allowance");
    Limit::named("calls", policy).expect("a valid name")
}

fn poll(submission: &mut Submission<'_>) -> Poll<()> {
    Pin::new(submission).poll(&mut Context::from_waker(Waker::noop()))
}

fn is_allowed(answer: &Result<StoreResponse, StoreError>) -> bool {
    matches!(answer, Ok(StoreResponse::Decision(Decision::Allowed(_))))
}

/// Number of remaining tokens according to the wrapped store.
fn left(store: &Faulty, limit: &Limit) -> u64 {
    let charges = [Charge::new(limit, "k", 0)];
    let operations = [Operation::Peek(&charges)];
    let mut answers = StoreResponses::new();
    assert!(matches!(store.inner().submit(&operations, &mut answers), Submission::Ready));
    match answers.pop() {
        Some(Ok(StoreResponse::Decision(Decision::Allowed(grant)))) => grant.outcomes[0].remaining,
        other => panic!("{other:?}"),
    }
}

/// Number of polls until the submission is executed, and until it is answered.
fn polls(timing: Timing) -> (usize, usize) {
    let (store, limit) = (store(timing), allowance(9));
    let charges = [Charge::new(&limit, "k", 1)];
    let operations = [Operation::Take(&charges)];
    let mut answers = StoreResponses::new();
    let mut submission = store.submit(&operations, &mut answers);
    if matches!(submission, Submission::Ready) {
        assert_eq!(store.in_flight(), 0);
        return (0, 0);
    }
    let mut executed = None;
    for polled in 1..9 {
        let done = poll(&mut submission).is_ready();
        if executed.is_none() && left(&store, &limit) == 8 {
            executed = Some(polled);
        }
        if done {
            drop(submission);
            assert!(is_allowed(&answers[0]));
            return (executed.expect("answered without being executed"), polled);
        }
        assert_eq!(store.in_flight(), 1);
    }
    (executed.unwrap_or(usize::MAX), usize::MAX)
}

#[test]
fn each_timing_executes_and_answers_in_its_poll() {
    assert_eq!(polls(Timing::AtOnce), (0, 0));
    assert_eq!(polls(Timing::WhenPolled), (1, 1));
    assert_eq!(polls(Timing::Deferred), (2, 2));
    assert_eq!(polls(Timing::AnsweredLate), (1, 2));
    assert_eq!(polls(Timing::Unanswered), (1, usize::MAX));
    assert_eq!(polls(Timing::Never), (usize::MAX, usize::MAX));
    assert_eq!(polls(Timing::Gated), (usize::MAX, usize::MAX));
}

#[tokio::test]
async fn the_gate_passes_as_many_submissions_as_it_is_opened_for() {
    let (store, limit) = (store(Timing::Gated), allowance(9));
    let charges = [Charge::new(&limit, "k", 1)];
    let operations = [Operation::Take(&charges)];
    let (mut first, mut second) = (StoreResponses::new(), StoreResponses::new());
    let mut waiting = store.submit(&operations, &mut first);
    assert!(poll(&mut waiting).is_pending());
    store.open(1);
    waiting.await;
    assert_eq!((left(&store, &limit), store.gate_permits()), (8, 0));
    let mut waiting = store.submit(&operations, &mut second);
    assert!(poll(&mut waiting).is_pending());
    assert_eq!(store.in_flight(), 1);
    drop(waiting);
    assert_eq!((left(&store, &limit), store.in_flight()), (8, 0));
}

#[tokio::test(start_paused = true)]
async fn delays_use_the_time_of_the_runtime() {
    for (timing, span, of_probe) in [
        (Timing::After(SECOND), SECOND, SECOND),
        (Timing::RoundTrip(SECOND), SECOND, SECOND),
        (Timing::Each(SECOND), SECOND * 3, SECOND),
        (Timing::WhenPolled, Duration::ZERO, Duration::ZERO),
    ] {
        let (store, limit) = (store(timing), allowance(9));
        let charges = [Charge::new(&limit, "k", 1)];
        let (mut answers, asked) = (StoreResponses::new(), Instant::now());
        store.submit(&[Operation::Take(&charges); 3], &mut answers).await;
        assert_eq!((asked.elapsed(), answers.len()), (span, 3), "{timing:?}");
        let probed = Instant::now();
        assert!(store.probe().await.is_ok());
        assert_eq!((probed.elapsed(), store.probes()), (of_probe, vec![probed]), "{timing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_round_trip_is_decided_after_half_its_time() {
    let (store, limit) = (store(Timing::RoundTrip(SECOND)), allowance(9));
    let charges = [Charge::new(&limit, "k", 1)];
    let operations = [Operation::Take(&charges)];
    for (at, remaining) in [(SECOND * 2 / 5, 9), (SECOND * 3 / 5, 8)] {
        let mut answers = StoreResponses::new();
        let asked = store.submit(&operations, &mut answers);
        assert!(tokio::time::timeout(at, asked).await.is_err());
        assert_eq!((left(&store, &limit), answers.len()), (remaining, 0));
    }
}

#[tokio::test]
async fn selected_operations_fail_and_the_others_are_decided() {
    let limit = allowance(9);
    let charges = [Charge::new(&limit, "k", 1)];
    let chosen = |asked: OperationContext<'_>| (asked.index % 2 == 1).then_some(StoreError::Full);
    let store = store(Behaviour::from(Timing::AtOnce).failing_if(chosen));
    let mut answers = StoreResponses::new();
    store.submit(&[Operation::Take(&charges); 4], &mut answers).await;
    let allowed: Vec<bool> = answers.iter().map(is_allowed).collect();
    assert_eq!((allowed, left(&store, &limit)), (vec![true, false, true, false], 7));
    assert!(store.probe().await.is_ok());

    store.set(Behaviour::from(Timing::AtOnce).failing_if(|asked| {
        let reset = OperationKind::of(asked.operation) == OperationKind::Reset;
        (reset || asked.number == 4).then_some(StoreError::TimedOut)
    }));
    answers.clear();
    let reset = Operation::Reset { target: charges[0].target };
    let operations = [Operation::Take(&charges), Operation::Take(&charges), reset];
    store.submit(&operations, &mut answers).await;
    let allowed: Vec<bool> = answers.iter().map(is_allowed).collect();
    assert_eq!(allowed, [false, true, false], "the fifth of all, and what resets");
}

#[tokio::test]
async fn a_failing_store_fails_probes_until_it_recovers() {
    let limit = allowance(9);
    let charges = [Charge::new(&limit, "k", 1)];
    let store = store(Behaviour::from(Timing::WhenPolled).unavailable());
    let mut answers = StoreResponses::new();
    store.submit(&[Operation::Take(&charges); 2], &mut answers).await;
    assert!(answers.iter().all(|it| matches!(it, Err(StoreError::Unavailable(_)))));
    assert!(matches!(store.probe().await, Err(StoreError::Unavailable(_))));
    store.set(Timing::WhenPolled);
    answers.clear();
    store.submit(&[Operation::Take(&charges)], &mut answers).await;
    assert!(is_allowed(&answers[0]) && store.probe().await.is_ok());
    assert_eq!(left(&store, &limit), 8);
}

#[tokio::test]
async fn answers_can_be_left_out_and_probes_can_panic() {
    let limit = allowance(9);
    let charges = [Charge::new(&limit, "k", 1)];
    let behaviour = Behaviour::from(Timing::AtOnce).with_max_answers(1).probing(|number| {
        assert!(number >= 1, "this probe is meant to panic");
        Ok(())
    });
    let store = store(behaviour);
    let mut answers = StoreResponses::new();
    store.submit(&[Operation::Take(&charges); 3], &mut answers).await;
    assert_eq!((answers.len(), left(&store, &limit)), (1, 8));
    let probed = store.clone();
    assert!(tokio::spawn(async move { probed.probe().await }).await.is_err());
    assert!(store.probe().await.is_ok());
    assert_eq!(store.probes().len(), 2);
}

#[test]
fn the_timing_may_depend_on_the_operations() {
    let limit = allowance(9);
    let charges = [Charge::new(&limit, "k", 1)];
    let store = store(Behaviour::timed_by(|operations| match operations {
        [Operation::Peek(_)] => Timing::Deferred,
        _ => Timing::AtOnce,
    }));
    let mut answers = StoreResponses::new();
    let take = [Operation::Take(&charges)];
    assert!(matches!(store.submit(&take, &mut answers), Submission::Ready));
    let peek = [Operation::Peek(&charges)];
    assert!(matches!(store.submit(&peek, &mut answers), Submission::Pending(_)));
}

#[tokio::test]
async fn takes_can_be_decided_by_another_limit() {
    let (asked, in_force) = (allowance(9), allowance(1));
    let charges = [Charge::new(&asked, "k", 1)];
    let store = store(Behaviour::from(Timing::AtOnce).overriding_limit(in_force));
    let mut answers = StoreResponses::new();
    store.submit(&[Operation::Take(&charges); 2], &mut answers).await;
    assert_eq!((is_allowed(&answers[0]), is_allowed(&answers[1])), (true, false));
}

#[tokio::test]
async fn submissions_and_operations_are_counted() {
    let limit = allowance(9);
    let charges = [Charge::new(&limit, "k", 1)];
    let (take, peek) = (Operation::Take(&charges), Operation::Peek(&charges));
    let store = store(Behaviour::from(Timing::WhenPolled).failing(|| StoreError::TimedOut));
    let mut answers = StoreResponses::new();
    store.submit(&[take, peek, take], &mut answers).await;
    store.submit(&[take], &mut answers).await;
    drop(store.submit(&[peek], &mut answers));
    assert_eq!((store.submissions(), store.operations()), (3, 5));
    assert_eq!(
        (
            store.operations_by_kind(OperationKind::Take),
            store.submissions_with(OperationKind::Take)
        ),
        (3, 2)
    );
    assert_eq!(
        (
            store.operations_by_kind(OperationKind::Peek),
            store.submissions_with(OperationKind::Peek)
        ),
        (2, 2)
    );
    assert_eq!(store.operations_by_kind(OperationKind::Renew), 0);
    assert_eq!(store.nodes(), None);
    store.set_nodes(7);
    assert_eq!(store.nodes().map(u32::from), Some(7));
}
