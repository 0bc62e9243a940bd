//! Futures dropped during a call to a shared store lose nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate::{Engine, MemoryStore, Policy, StoreHandle};
use tidegate_core::Limit;
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};
use tidegate_ws::{Connection, Gate, MessageDecision, Peer};

use crate::fixture::{Session, frame};

/// A faulty store, and an engine that uses it as a shared store.
fn faulty(behaviour: impl Into<Behaviour>) -> (Arc<FaultyStore<MemoryStore>>, Engine) {
    let store = FaultyStore::new(MemoryStore::new(), behaviour);
    (store.clone(), Engine::on(StoreHandle::shared(store)))
}

/// A store that executes calls at once and responds later, even if the caller does not wait.
fn responding_late() -> (Arc<FaultyStore<MemoryStore>>, Engine) {
    faulty(Timing::AnsweredLate)
}

/// A gate with one slot for each user.
fn one_slot(engine: &Engine) -> Gate<Session> {
    let slots = engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    Gate::for_types(["SAY"]).limit(slots).build().unwrap()
}

type Ingress = Pin<Box<dyn Future<Output = MessageDecision> + Send>>;

/// A message from alice. The future owns its connection.
fn ingress(gate: &Gate<Session>) -> Ingress {
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    Box::pin(async move { connection.ingress(frame("SAY")).await.unwrap() })
}

fn poll(ingress: &mut Ingress) -> Poll<MessageDecision> {
    ingress.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Yields until all tasks are idle.
async fn run_tasks() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn slot_is_free(gate: &Gate<Session>) -> bool {
    matches!(ingress(gate).await, MessageDecision::Accepted(_))
}

#[tokio::test]
async fn slots_of_a_dropped_future_are_released() {
    let (_, engine) = responding_late();
    let gate = one_slot(&engine);
    let mut ingress = ingress(&gate);
    assert!(poll(&mut ingress).is_pending());
    drop(ingress);
    run_tasks().await;
    assert!(slot_is_free(&gate).await);
}

#[tokio::test]
async fn slots_of_an_unread_decision_are_released() {
    let (_, engine) = responding_late();
    let gate = one_slot(&engine);
    let mut ingress = ingress(&gate);
    assert!(poll(&mut ingress).is_pending());
    run_tasks().await;
    assert!(!slot_is_free(&gate).await, "the unread decision holds the slot");
    drop(ingress);
    run_tasks().await;
    assert!(slot_is_free(&gate).await);
}

#[tokio::test]
async fn slots_are_released_from_threads_without_a_runtime() {
    let (_, engine) = responding_late();
    let gate = one_slot(&engine);
    let mut finished = ingress(&gate);
    assert!(poll(&mut finished).is_pending());
    run_tasks().await;
    std::thread::spawn(move || drop(finished)).join().unwrap();
    run_tasks().await;
    let MessageDecision::Accepted(token) = ingress(&gate).await else { panic!("the slot is lost") };
    std::thread::spawn(move || drop(token)).join().unwrap();
    run_tasks().await;
    assert!(slot_is_free(&gate).await);
}

#[test]
fn slots_are_counted_without_a_runtime() {
    let (_, engine) = faulty(Timing::WhenPolled);
    let gate = one_slot(&engine);
    let Poll::Ready(MessageDecision::Accepted(_token)) = poll(&mut ingress(&gate)) else {
        panic!("not accepted")
    };
    assert!(matches!(poll(&mut ingress(&gate)), Poll::Ready(MessageDecision::Refused(_))));
}

#[tokio::test]
async fn connection_continues_after_a_dropped_future() {
    let (store, engine) = responding_late();
    let all = engine.limiter("all", Policy::allowance(2).unwrap()).unwrap();
    let slots = engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    let gate = Gate::for_types(["SAY"]).limit(slots).connection_ceiling(all).build().unwrap();
    let mut connection: Connection<Session> = gate.connect(Peer::new(Session::of("alice")));
    {
        let mut dropped = std::pin::pin!(connection.ingress(frame("SAY")));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(dropped.as_mut().poll(&mut cx).is_pending());
    }
    run_tasks().await;
    // Its slot is free, and its token is spent: one of two is left.
    let second = connection.ingress(frame("SAY")).await.unwrap();
    assert!(matches!(second, MessageDecision::Accepted(_)));
    drop(second);
    run_tasks().await;
    let third = connection.ingress(frame("SAY")).await.unwrap();
    assert!(matches!(third, MessageDecision::Refused(_)));
    drop(connection);
    run_tasks().await;
    assert_eq!(store.inner().len(), 0);
}

#[tokio::test]
async fn slots_are_released_under_an_outdated_policy() {
    let slots = Limit::named("calls", Policy::concurrency(1, None).unwrap()).unwrap();
    // Another node has changed the policy, and this one does not know yet.
    let (_, engine) = faulty(Behaviour::from(Timing::Deferred).overriding_limit(slots));
    let calls = engine.limiter("calls", Policy::per_second(1).build().unwrap()).unwrap();
    let gate = Gate::for_types(["SAY"]).limit(calls).build().unwrap();
    let MessageDecision::Accepted(token) = ingress(&gate).await else { panic!("refused") };
    assert!(!slot_is_free(&gate).await);
    drop(token);
    run_tasks().await;
    assert!(slot_is_free(&gate).await);
}
