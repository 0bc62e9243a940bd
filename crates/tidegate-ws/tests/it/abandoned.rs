//! Futures that are dropped while a shared store is being asked lose nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate::{Engine, MemoryStore, Policy, StoreHandle};
use tidegate_core::{Limit, Operation};
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing, Verb};
use tidegate_ws::{Connection, Gate, MessageDecision, Peer, Rule};

use crate::session::{Session, frame, of_connection};

/// A store, and an engine on it as on a shared one.
fn faulty(behaviour: impl Into<Behaviour>) -> (Arc<FaultyStore<MemoryStore>>, Engine) {
    let store = FaultyStore::new(MemoryStore::new(), behaviour);
    (store.clone(), Engine::on(StoreHandle::shared(store)))
}

/// A store at the other end of a wire: what was sent is carried out, also if the caller does not
/// wait for the answer.
fn wired() -> (Arc<FaultyStore<MemoryStore>>, Engine) {
    faulty(Timing::AnsweredLate)
}

/// A gate with one slot for each user.
fn one_slot(engine: &Engine) -> Gate<Session> {
    let slots = engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    Gate::for_types(["SAY"]).limit(slots).build().unwrap()
}

type Ingress = Pin<Box<dyn Future<Output = MessageDecision> + Send>>;

/// A message of alice's, on its way. The future is the only one to know the connection.
fn ingress(gate: &Gate<Session>) -> Ingress {
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    Box::pin(async move { connection.ingress(frame("SAY")).await.unwrap() })
}

fn poll(ingress: &mut Ingress) -> Poll<MessageDecision> {
    ingress.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Lets all tasks run for as long as they have something to do.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn is_free(gate: &Gate<Session>) -> bool {
    matches!(ingress(gate).await, MessageDecision::Accepted(_))
}

#[tokio::test]
async fn slots_that_a_dropped_future_has_taken_are_given_back() {
    let (_, engine) = wired();
    let gate = one_slot(&engine);
    let mut ingress = ingress(&gate);
    assert!(poll(&mut ingress).is_pending());
    drop(ingress);
    settle().await;
    assert!(is_free(&gate).await);
}

#[tokio::test]
async fn slots_of_an_answer_that_nobody_fetches_are_given_back() {
    let (_, engine) = wired();
    let gate = one_slot(&engine);
    let mut ingress = ingress(&gate);
    assert!(poll(&mut ingress).is_pending());
    settle().await;
    assert!(!is_free(&gate).await, "the answer is there, and holds the slot");
    drop(ingress);
    settle().await;
    assert!(is_free(&gate).await);
}

#[tokio::test]
async fn slots_come_back_from_threads_that_know_no_runtime() {
    let (_, engine) = wired();
    let gate = one_slot(&engine);
    let mut unfetched = ingress(&gate);
    assert!(poll(&mut unfetched).is_pending());
    settle().await;
    std::thread::spawn(move || drop(unfetched)).join().unwrap();
    settle().await;
    let MessageDecision::Accepted(token) = ingress(&gate).await else { panic!("the slot is lost") };
    std::thread::spawn(move || drop(token)).join().unwrap();
    settle().await;
    assert!(is_free(&gate).await);
}

#[test]
fn without_a_runtime_slots_are_taken_and_counted_as_ever() {
    let (_, engine) = faulty(Timing::WhenPolled);
    let gate = one_slot(&engine);
    let Poll::Ready(MessageDecision::Accepted(_token)) = poll(&mut ingress(&gate)) else {
        panic!("not accepted")
    };
    assert!(matches!(poll(&mut ingress(&gate)), Poll::Ready(MessageDecision::Refused(_))));
}

#[tokio::test]
async fn a_bucket_that_a_dropped_future_has_made_goes_with_the_connection() {
    let (store, engine) = wired();
    let all = engine.limiter("all", Policy::allowance(9).unwrap()).unwrap();
    let gate = Gate::<Session>::for_types(["SAY"]).connection_ceiling(all).build().unwrap();
    let mut ingress = ingress(&gate);
    assert!(poll(&mut ingress).is_pending());
    assert_eq!(store.inner().len(), 1);
    drop(ingress);
    settle().await;
    assert_eq!(store.inner().len(), 0, "an allowance stays for good");
}

/// Every bucket once was a trip of its own.
#[tokio::test]
async fn many_buckets_of_a_connection_are_forgotten_in_a_few_calls() {
    let (store, engine) = faulty(Timing::WhenPolled);
    let rooms = engine.limiter("rooms", Policy::allowance(9).unwrap()).unwrap();
    let of_room = Rule::<Session>::new(rooms)
        .key(|context| context.connection_key().and(context.data().room.as_str()));
    let gate = Gate::for_types(["SAY"]).limit(of_room).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::default()));
    for room in 0..200 {
        connection.data_mut().room = room.to_string();
        let verdict = connection.ingress(frame("SAY")).await.unwrap();
        assert!(matches!(verdict, MessageDecision::Accepted(_)));
    }
    assert_eq!(store.inner().len(), 200);
    drop(connection);
    settle().await;
    assert_eq!((store.inner().len(), store.submissions_with(Verb::Reset)), (0, 4));
}

#[tokio::test]
async fn a_connection_is_forgotten_after_all_that_was_asked_for_it() {
    // It is slow to take and quick to forget.
    let (store, engine) = faulty(Behaviour::timed_by(|operations| match operations {
        [Operation::Take(_)] => Timing::Gated,
        _ => Timing::WhenPolled,
    }));
    let all = engine.limiter("all", Policy::allowance(9).unwrap()).unwrap();
    let slots = engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    let gate = Gate::for_types(["SAY"]).limit(slots).connection_ceiling(all).build().unwrap();
    let mut ingress = ingress(&gate);
    assert!(poll(&mut ingress).is_pending());
    drop(ingress);
    settle().await;
    store.open(1);
    settle().await;
    assert_eq!(store.unused_openings(), 0, "it was carried out");
    assert_eq!(store.inner().len(), 0, "and has made no bucket that nobody knows of");
}

#[tokio::test]
async fn a_connection_that_gives_up_on_one_message_goes_on_with_the_next() {
    let (store, engine) = wired();
    let all = engine.limiter("all", Policy::allowance(2).unwrap()).unwrap();
    let slots = engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    let rule = Rule::new(slots).key(of_connection);
    let gate = Gate::for_types(["SAY"]).limit(rule).connection_ceiling(all).build().unwrap();
    let mut connection: Connection<Session> = gate.connect(Peer::new(Session::default()));
    {
        let mut given_up = std::pin::pin!(connection.ingress(frame("SAY")));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(given_up.as_mut().poll(&mut cx).is_pending());
    }
    settle().await;
    // Its slot is free, and its token is spent: of two there is one.
    let second = connection.ingress(frame("SAY")).await.unwrap();
    assert!(matches!(second, MessageDecision::Accepted(_)));
    drop(second);
    settle().await;
    let third = connection.ingress(frame("SAY")).await.unwrap();
    assert!(matches!(third, MessageDecision::Refused(_)));
    drop(connection);
    settle().await;
    assert_eq!(store.inner().len(), 0);
}

#[tokio::test]
async fn slots_are_given_back_even_if_the_gate_does_not_know_that_they_are_counted() {
    let slots = Limit::named("calls", Policy::concurrency(1, None).unwrap()).unwrap();
    // Another node has put another policy into place, of which this one has not heard.
    let (_, engine) = faulty(Behaviour::from(Timing::Deferred).taking_by(slots));
    let calls = engine.limiter("calls", Policy::per_second(1).build().unwrap()).unwrap();
    let gate = Gate::for_types(["SAY"]).limit(calls).build().unwrap();
    let MessageDecision::Accepted(token) = ingress(&gate).await else { panic!("refused") };
    assert!(!is_free(&gate).await);
    drop(token);
    settle().await;
    assert!(is_free(&gate).await);
}
