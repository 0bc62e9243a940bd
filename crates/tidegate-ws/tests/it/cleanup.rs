//! Cleanup: slots when a message is done, buckets when a connection is dropped.

use std::time::Duration;

use tidegate::clock::ManualClock;
use tidegate::{Engine, Limiter, MemoryStore, Policy, StoreError, StoreHandle, now_or_never};
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};
use tidegate_ws::{Connection, Gate, MAX_CONNECTION_KEYS, MessageDecision, MessageRule, Peer};

use crate::fixture::{Fixture, Session, accepted_count, connection_key, frame, is_accepted, send};

#[test]
fn connection_buckets_are_reset_and_user_buckets_stay() {
    let fixture = Fixture::new();
    let per_user = fixture.limiter("user", 1, 10);
    let per_connection = fixture.limiter("connection", 1, 10);
    let gate = Gate::for_types(["SAY", "PING"])
        .limit(per_user)
        .limit(
            MessageRule::new(per_connection)
                .key(|context| context.connection_key().and(context.message_type())),
        )
        .connection_ceiling(fixture.limiter_with("ceiling", Policy::allowance(100).unwrap()))
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let mut other = gate.connect(Peer::new(Session::of("alice")));
    assert!(is_accepted(&mut connection, "SAY") && is_accepted(&mut connection, "PING"));
    assert!(is_accepted(&mut other, "SAY"));
    // Two of the user, and two and one of the connections, with a ceiling each.
    assert_eq!(fixture.buckets(), 2 + (2 + 1) + (1 + 1));
    drop(connection);
    assert_eq!(fixture.buckets(), 2 + (1 + 1));
    drop(other);
    assert_eq!(fixture.buckets(), 2);
}

#[test]
fn anonymous_client_leaves_no_bucket() {
    let fixture = Fixture::new();
    let gate = Gate::for_types(["SAY"]).limit(fixture.limiter("say", 1, 3)).build().unwrap();
    let mut anonymous = gate.connect(Peer::new(Session::default()));
    assert_eq!(accepted_count(&mut anonymous, "SAY", 9), 3);
    assert_eq!(fixture.buckets(), 1);
    drop(anonymous);
    assert_eq!(fixture.buckets(), 0);
}

/// A gate for one type, with a bucket per connection and room.
fn by_room(limiter: Limiter) -> Gate<Session> {
    let rule = MessageRule::<Session>::new(limiter)
        .key(|context| context.connection_key().and(context.data().room.as_str()));
    Gate::for_types(["SAY"]).limit(rule).build().unwrap()
}

fn send_in_rooms(connection: &mut Connection<Session>, rooms: usize) {
    for room in 0..rooms {
        connection.data_mut().room = format!("room-{room}");
        assert!(is_accepted(connection, "SAY"));
    }
}

#[test]
fn buckets_of_custom_connection_keys_are_reset() {
    let fixture = Fixture::new();
    let gate = by_room(fixture.limiter_with("room", Policy::allowance(100).unwrap()));
    let mut connection = gate.connect(Peer::new(Session::default()));
    send_in_rooms(&mut connection, MAX_CONNECTION_KEYS);
    assert_eq!(fixture.buckets(), 1_024);
    drop(connection);
    assert_eq!(fixture.buckets(), 0);
}

#[test]
fn buckets_beyond_the_bound_are_left_to_the_store() {
    let fixture = Fixture::new();
    // The token bucket is full again after three seconds; the allowance never refills.
    let tokens = by_room(fixture.limiter("tokens", 1, 3));
    let allowance = by_room(fixture.limiter_with("allowance", Policy::allowance(3).unwrap()));
    for gate in [tokens, allowance] {
        send_in_rooms(&mut gate.connect(Peer::new(Session::default())), MAX_CONNECTION_KEYS + 5);
    }
    assert_eq!(fixture.buckets(), 5 + 5);
    fixture.clock.advance(Duration::from_secs(3));
    fixture.engine.store().local().unwrap().cleanup_stale(Duration::ZERO);
    assert_eq!(fixture.buckets(), 5);
}

#[test]
fn bound_counts_all_limiters_of_a_connection() {
    let fixture = Fixture::new();
    let own = |name| {
        MessageRule::<Session>::new(fixture.limiter_with(name, Policy::allowance(9).unwrap()))
            .key(|context| context.connection_key().and(context.data().room.as_str()))
    };
    let gate = Gate::for_types(["SAY"]).limit(own("one")).limit(own("other")).build().unwrap();
    send_in_rooms(&mut gate.connect(Peer::new(Session::default())), 600);
    assert_eq!(fixture.buckets(), 2 * 600 - MAX_CONNECTION_KEYS);
}

#[test]
fn messages_in_progress_keep_slots_under_connection_keys() {
    let fixture = Fixture::new();
    let slots = fixture.limiter_with("slots", Policy::concurrency(1, None).unwrap());
    let rule = MessageRule::<Session>::new(slots).key(connection_key);
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let connect = || gate.connect(Peer::new(Session::default()).id("device-1"));
    let mut connection = connect();
    let token =
        now_or_never(connection.ingress(frame("SAY"))).unwrap().unwrap().accepted().unwrap();
    drop(connection);
    let mut reconnected = connect();
    assert!(!is_accepted(&mut reconnected, "SAY"), "its message is still in progress");
    drop(token);
    assert!(is_accepted(&mut reconnected, "SAY"));
}

#[test]
fn handler_slower_than_the_lease_loses_its_slot() {
    let fixture = Fixture::new();
    let lease = Duration::from_secs(5);
    let slots = fixture.limiter_with("slots", Policy::concurrency(1, Some(lease)).unwrap());
    let gate = Gate::for_types(["SAY"]).limit(slots).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let slow = send(&mut connection, "SAY").accepted().unwrap();
    assert!(!is_accepted(&mut connection, "SAY"));
    fixture.clock.advance(lease);
    let next = send(&mut connection, "SAY").accepted().unwrap();
    drop(slow);
    assert!(
        !is_accepted(&mut connection, "SAY"),
        "the slow message does not release the slot of the next one"
    );
    drop(next);
    assert!(is_accepted(&mut connection, "SAY"));
}

#[test]
fn slots_are_held_until_the_message_is_done() {
    let fixture = Fixture::new();
    let slots = fixture.limiter_with("slots", Policy::concurrency(2, None).unwrap());
    let gate = Gate::for_types(["SAY"])
        .limit(slots.clone())
        .limit(fixture.limiter("rate", 1, 100))
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let tokens: Vec<MessageDecision> = (0..2).map(|_| send(&mut connection, "SAY")).collect();
    assert!(!is_accepted(&mut connection, "SAY"));
    drop(connection);
    let mut reconnected = gate.connect(Peer::new(Session::of("alice")));
    assert!(!is_accepted(&mut reconnected, "SAY"));
    drop(tokens);
    assert!(is_accepted(&mut reconnected, "SAY"));
}

#[test]
fn message_refused_by_validation_releases_its_slot() {
    let fixture = Fixture::new();
    let gate = Gate::for_types(["SAY"])
        .limit(fixture.limiter_with("slots", Policy::concurrency(1, None).unwrap()))
        .validate(|_, frame| match frame.len() {
            14 => Ok(()),
            _ => Err(tidegate_ws::ValidationError::new("rejected by the test")),
        })
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let invalid = now_or_never(connection.ingress(r#"{"type":"SAY","odd":1}"#)).unwrap().unwrap();
    assert!(matches!(invalid, MessageDecision::Refused(_)));
    assert!(is_accepted(&mut connection, "SAY"));
}

#[tokio::test]
async fn shared_store_decides_the_same() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let store = FaultyStore::new(store, Timing::Deferred);
    let engine: Engine = Engine::on(StoreHandle::shared(store.clone()));
    let say = engine.limiter("say", Policy::per_second(1).capacity(1).build().unwrap()).unwrap();
    let slots = engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    let gate = Gate::for_types(["SAY", "CALL"])
        .limit(MessageRule::new(say).when(|context| context.message_type() == "SAY"))
        .limit(MessageRule::new(slots.clone()).when(|context| context.message_type() == "CALL"))
        .connection_ceiling(engine.limiter("all", Policy::allowance(9).unwrap()).unwrap())
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));

    drop(connection.ingress(frame("SAY")));
    assert_eq!(store.inner().len(), 0, "a future that is not polled has no effect");
    // The future is `Send`, so it can be spawned.
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
    // A task releases the slot of the call; retry until it has.
    let token = loop {
        match connection.ingress(frame("CALL")).await.unwrap() {
            MessageDecision::Accepted(token) => break token,
            MessageDecision::Refused(refusal) => {
                assert_eq!(refusal.exceeded().unwrap().retry_after_ms, Some(1_000));
                tokio::task::yield_now().await;
            }
        }
    };
    drop(token);
    drop(connection);
    // The bucket of the user stays.
    while store.inner().len() > 1 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn unavailable_store_is_an_error_and_not_an_exceeded_limit() {
    let unavailable = Behaviour::from(Timing::AtOnce).unavailable();
    let unavailable = FaultyStore::new(MemoryStore::new(), unavailable);
    let engine = Engine::on(StoreHandle::shared(unavailable));
    let policy = Policy::per_second(1).build().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let gate = Gate::for_types(["SAY"])
        .limit(engine.limiter("say", policy).unwrap())
        .max_in_flight(1)
        .on_limit_exceeded(move |exceeded| sender.send(exceeded).unwrap())
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    for _ in 0..3 {
        let error = connection.ingress(frame("SAY")).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)));
    }
    drop((connection, gate));
    assert!(receiver.recv().is_err(), "the hook was called");
}
