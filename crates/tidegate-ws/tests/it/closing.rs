//! What is given back: slots when a message is done, buckets when a connection is.

use std::sync::Arc;

use tidegate::clock::ManualClock;
use tidegate::{Answers, Engine, MemoryStore, Operation, Policy, Store, StoreError, Submission};
use tidegate_ws::{Gate, Peer, Rule, Verdict};

use crate::session::{Bench, Distant, Session, frame, passes, passing, send};

#[test]
fn buckets_of_a_connection_go_with_it_and_those_of_users_stay() {
    let bench = Bench::new();
    let per_user = bench.limiter("user", 1, 10);
    let per_connection = bench.limiter("connection", 1, 10);
    let gate = Gate::for_types(["SAY", "PING"])
        .limit(per_user)
        .limit(
            Rule::new(per_connection)
                .key(|context| context.connection_key().and(context.message_type())),
        )
        .connection_ceiling(bench.limiter_of("ceiling", Policy::allowance(100).unwrap()))
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let mut other = gate.connect(Peer::new(Session::of("alice")));
    assert!(passes(&mut connection, "SAY") && passes(&mut connection, "PING"));
    assert!(passes(&mut other, "SAY"));
    // The user's two, and two and one of the connections with a ceiling each.
    assert_eq!(bench.buckets(), 2 + (2 + 1) + (1 + 1));
    drop(connection);
    assert_eq!(bench.buckets(), 2 + (1 + 1));
    drop(other);
    assert_eq!(bench.buckets(), 2);
}

#[test]
fn a_client_without_user_and_address_leaves_nothing_behind() {
    let bench = Bench::new();
    let gate = Gate::for_types(["SAY"]).limit(bench.limiter("say", 1, 3)).build().unwrap();
    let mut anonymous = gate.connect(Peer::new(Session::default()));
    assert_eq!(passing(&mut anonymous, "SAY", 9), 3);
    assert_eq!(bench.buckets(), 1);
    drop(anonymous);
    assert_eq!(bench.buckets(), 0);
}

#[test]
fn who_invents_types_is_remembered_up_to_a_bound() {
    let bench = Bench::new();
    let rule = Rule::new(bench.limiter("say", 1, 3))
        .key(|context| context.connection_key().and(context.message_type()));
    let gate = Gate::<Session>::for_any_type().limit(rule).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::default()));
    for number in 0..300 {
        assert!(passes(&mut connection, &format!("T{number}")));
    }
    assert_eq!(bench.buckets(), 300);
    drop(connection);
    // The rest is full again after three seconds, and then as good as gone.
    assert_eq!(bench.buckets(), 300 - 256);
}

#[test]
fn slots_are_held_until_the_message_is_done_even_if_the_connection_is_gone() {
    let bench = Bench::new();
    let slots = bench.limiter_of("slots", Policy::concurrency(2, None).unwrap());
    let gate = Gate::for_types(["SAY"])
        .limit(slots.clone())
        .limit(bench.limiter("rate", 1, 100))
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let held: Vec<Verdict> = (0..2).map(|_| send(&mut connection, "SAY")).collect();
    assert!(!passes(&mut connection, "SAY"));
    drop(connection);
    let mut again = gate.connect(Peer::new(Session::of("alice")));
    assert!(!passes(&mut again, "SAY"));
    drop(held);
    assert!(passes(&mut again, "SAY"));
}

#[test]
fn a_message_that_is_refused_later_on_frees_its_slot() {
    let bench = Bench::new();
    let gate = Gate::for_types(["SAY"])
        .limit(bench.limiter_of("slots", Policy::concurrency(1, None).unwrap()))
        .validate(|_, frame| match frame.len() {
            14 => Ok(()),
            _ => Err(tidegate_ws::Invalid::new("not that")),
        })
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let invalid = connection.ingress_now(r#"{"type":"SAY","odd":1}"#).unwrap().unwrap();
    assert!(matches!(invalid, Verdict::Refused(_)));
    assert!(passes(&mut connection, "SAY"));
}

#[tokio::test]
async fn a_store_that_is_waited_for_decides_the_same() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let store = Arc::new(Distant(store));
    let engine: Engine<dyn Store> = Engine::on(store.clone());
    let say = engine.limiter("say", Policy::per_second(1).capacity(1).build().unwrap()).unwrap();
    let slots = engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    let gate = Gate::for_types(["SAY", "CALL"])
        .limit(Rule::new(say).when(|context| context.message_type() == "SAY"))
        .limit(Rule::new(slots.clone()).when(|context| context.message_type() == "CALL"))
        .connection_ceiling(engine.limiter("all", Policy::allowance(9).unwrap()).unwrap())
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::default()));

    assert!(connection.ingress_now(frame("SAY")).is_none());
    assert_eq!(store.0.len(), 0, "nothing has happened");
    // It can be spawned: the future is not bound to a thread.
    let connection = tokio::spawn(async move {
        let first = connection.ingress(frame("SAY")).await.unwrap();
        assert!(matches!(first, Verdict::Accepted(_)));
        let second = connection.ingress(frame("SAY")).await.unwrap();
        let Verdict::Refused(refusal) = second else { panic!("accepted") };
        assert_eq!(refusal.exceeded().unwrap().retry_after_ms, Some(1_000));
        let call = connection.ingress(frame("CALL")).await.unwrap();
        assert!(matches!(call, Verdict::Accepted(_)));
        connection
    });
    let mut connection = connection.await.unwrap();
    // The slot of the call is given back by a task; asking yields to it until it has.
    let again = loop {
        match connection.ingress(frame("CALL")).await.unwrap() {
            Verdict::Accepted(token) => break token,
            Verdict::Refused(refusal) => {
                assert_eq!(refusal.exceeded().unwrap().retry_after_ms, Some(1_000));
                tokio::task::yield_now().await;
            }
        }
    };
    drop(again);
    drop(connection);
    while !store.0.is_empty() {
        tokio::task::yield_now().await;
    }
}

/// A store that cannot be reached.
#[derive(Debug)]
struct Gone;

impl Store for Gone {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        answers: &'a mut Answers,
    ) -> Submission<'a> {
        let gone = || Err(StoreError::Unavailable("nobody there".into()));
        answers.extend(operations.iter().map(|_| gone()));
        Submission::Ready
    }
}

#[tokio::test]
async fn a_store_that_cannot_answer_is_an_error_and_no_exceeded_limit() {
    let engine: Engine<dyn Store> = Engine::on(Arc::new(Gone));
    let policy = Policy::per_second(1).build().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let gate = Gate::for_types(["SAY"])
        .limit(engine.limiter("say", policy).unwrap())
        .max_in_flight(1)
        .on_limit_exceeded(move |exceeded| tell.send(exceeded).unwrap())
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    for _ in 0..3 {
        let error = connection.ingress(frame("SAY")).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)));
    }
    drop((connection, gate));
    assert!(told.recv().is_err(), "the hook was told of something");
}
