//! What is given back: slots when a message is done, buckets when a connection is.

use std::time::Duration;

use tidegate::clock::ManualClock;
use tidegate::{Engine, Limiter, MemoryStore, Policy, StoreError, StoreHandle, now_or_never};
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};
use tidegate_ws::{Connection, Gate, MAX_CONNECTION_KEYS, MessageDecision, Peer, Rule};

use crate::session::{Bench, Session, frame, of_connection, passes, passing, send};

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

/// A gate for one type, with a bucket of the connection for every room.
fn by_room(limiter: Limiter) -> Gate<Session> {
    let rule = Rule::<Session>::new(limiter)
        .key(|context| context.connection_key().and(context.data().room.as_str()));
    Gate::for_types(["SAY"]).limit(rule).build().unwrap()
}

fn visit(connection: &mut Connection<Session>, rooms: usize) {
    for room in 0..rooms {
        connection.data_mut().room = format!("room-{room}");
        assert!(passes(connection, "SAY"));
    }
}

#[test]
fn what_a_connection_owns_goes_with_it_whatever_its_keys_are_made_of() {
    let bench = Bench::new();
    let gate = by_room(bench.limiter_of("room", Policy::allowance(100).unwrap()));
    let mut connection = gate.connect(Peer::new(Session::default()));
    visit(&mut connection, MAX_CONNECTION_KEYS);
    assert_eq!(bench.buckets(), 1_024);
    drop(connection);
    assert_eq!(bench.buckets(), 0);
}

#[test]
fn what_is_too_much_to_remember_is_left_to_the_store() {
    let bench = Bench::new();
    // Three seconds, and a bucket is full again; an allowance never is.
    let tokens = by_room(bench.limiter("tokens", 1, 3));
    let allowance = by_room(bench.limiter_of("allowance", Policy::allowance(3).unwrap()));
    for gate in [tokens, allowance] {
        visit(&mut gate.connect(Peer::new(Session::default())), MAX_CONNECTION_KEYS + 5);
    }
    assert_eq!(bench.buckets(), 5 + 5);
    bench.clock.advance(Duration::from_secs(3));
    bench.engine.store().local().unwrap().cleanup_stale(Duration::ZERO);
    assert_eq!(bench.buckets(), 5);
}

#[test]
fn the_bound_is_over_all_limiters_of_a_connection() {
    let bench = Bench::new();
    let own = |name| {
        Rule::<Session>::new(bench.limiter_of(name, Policy::allowance(9).unwrap()))
            .key(|context| context.connection_key().and(context.data().room.as_str()))
    };
    let gate = Gate::for_types(["SAY"]).limit(own("one")).limit(own("other")).build().unwrap();
    visit(&mut gate.connect(Peer::new(Session::default())), 600);
    assert_eq!(bench.buckets(), 2 * 600 - MAX_CONNECTION_KEYS);
}

#[test]
fn messages_that_are_being_handled_keep_their_slots_under_keys_of_their_connection() {
    let bench = Bench::new();
    let slots = bench.limiter_of("slots", Policy::concurrency(1, None).unwrap());
    let rule = Rule::<Session>::new(slots).key(of_connection);
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let connect = || gate.connect(Peer::new(Session::default()).id("device-1"));
    let mut connection = connect();
    let held = now_or_never(connection.ingress(frame("SAY"))).unwrap().unwrap().accepted().unwrap();
    drop(connection);
    let mut again = connect();
    assert!(!passes(&mut again, "SAY"), "its message is still being handled");
    drop(held);
    assert!(passes(&mut again, "SAY"));
}

#[test]
fn slots_with_a_lease_are_lost_to_others_by_handlers_that_are_slower() {
    let bench = Bench::new();
    let lease = Duration::from_secs(5);
    let slots = bench.limiter_of("slots", Policy::concurrency(1, Some(lease)).unwrap());
    let gate = Gate::for_types(["SAY"]).limit(slots).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let slow = send(&mut connection, "SAY").accepted().unwrap();
    assert!(!passes(&mut connection, "SAY"));
    bench.clock.advance(lease);
    let next = send(&mut connection, "SAY").accepted().unwrap();
    drop(slow);
    assert!(!passes(&mut connection, "SAY"), "the slow one gives back nothing of the next one's");
    drop(next);
    assert!(passes(&mut connection, "SAY"));
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
    let held: Vec<MessageDecision> = (0..2).map(|_| send(&mut connection, "SAY")).collect();
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
    let invalid = now_or_never(connection.ingress(r#"{"type":"SAY","odd":1}"#)).unwrap().unwrap();
    assert!(matches!(invalid, MessageDecision::Refused(_)));
    assert!(passes(&mut connection, "SAY"));
}

#[tokio::test]
async fn a_store_that_is_waited_for_decides_the_same() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let store = FaultyStore::new(store, Timing::Deferred);
    let engine: Engine = Engine::on(StoreHandle::shared(store.clone()));
    let say = engine.limiter("say", Policy::per_second(1).capacity(1).build().unwrap()).unwrap();
    let slots = engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    let gate = Gate::for_types(["SAY", "CALL"])
        .limit(Rule::new(say).when(|context| context.message_type() == "SAY"))
        .limit(Rule::new(slots.clone()).when(|context| context.message_type() == "CALL"))
        .connection_ceiling(engine.limiter("all", Policy::allowance(9).unwrap()).unwrap())
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::default()));

    drop(connection.ingress(frame("SAY")));
    assert_eq!(store.inner().len(), 0, "nothing has happened");
    // It can be spawned: the future is not bound to a thread.
    let connection = tokio::spawn(async move {
        let first = connection.ingress(frame("SAY")).await.unwrap();
        assert!(matches!(first, MessageDecision::Accepted(_)));
        let second = connection.ingress(frame("SAY")).await.unwrap();
        let MessageDecision::Refused(refusal) = second else { panic!("accepted") };
        assert_eq!(refusal.exceeded().unwrap().retry_after_ms, Some(1_000));
        let call = connection.ingress(frame("CALL")).await.unwrap();
        assert!(matches!(call, MessageDecision::Accepted(_)));
        connection
    });
    let mut connection = connection.await.unwrap();
    // The slot of the call is given back by a task; asking yields to it until it has.
    let again = loop {
        match connection.ingress(frame("CALL")).await.unwrap() {
            MessageDecision::Accepted(token) => break token,
            MessageDecision::Refused(refusal) => {
                assert_eq!(refusal.exceeded().unwrap().retry_after_ms, Some(1_000));
                tokio::task::yield_now().await;
            }
        }
    };
    drop(again);
    drop(connection);
    while !store.inner().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_store_that_cannot_answer_is_an_error_and_no_exceeded_limit() {
    let gone = Behaviour::from(Timing::AtOnce).unavailable();
    let gone = FaultyStore::new(MemoryStore::new(), gone);
    let engine = Engine::on(StoreHandle::shared(gone));
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
