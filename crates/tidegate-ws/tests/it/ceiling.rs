//! What a connection's ceiling is charged for messages that are not decided.

use tidegate::{Engine, FailureRule, Limiter, MemoryStore, Policy, StoreHandle, now_or_never};
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};
use tidegate_ws::{Connection, Gate, MessageDecision, MessageRule, Peer, RefusalReason};

use crate::fixture::{Fixture, Session, accepted_count, connection_key, frame, refusal_reason};

fn allowance(engine: &Engine, name: &str, amount: u64) -> Limiter {
    engine.limiter(name, Policy::allowance(amount).unwrap()).unwrap()
}

/// A cost below 1 was refused before the ceiling was charged, so messages of a type that a cost
/// function does not know were unlimited.
#[test]
fn messages_with_an_invalid_cost_are_charged_to_the_ceiling_alone() {
    let fixture = Fixture::new();
    let rules = [allowance(&fixture.engine, "valid", 9), allowance(&fixture.engine, "invalid", 9)];
    let [valid, invalid] = rules.map(MessageRule::<Session>::new);
    let ceiling = allowance(&fixture.engine, "ceiling", 3);
    let gate = Gate::for_types(["SAY", "FREE"])
        .limit(valid)
        .limit(invalid.cost(|context| i64::from(context.message_type() == "SAY")))
        .connection_ceiling(ceiling)
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    for _ in 0..3 {
        assert_eq!(refusal_reason(&mut connection, "FREE"), RefusalReason::InvalidCost);
    }
    assert_eq!(fixture.buckets(), 1, "only the bucket of the ceiling");
    for message_type in ["FREE", "SAY"] {
        assert_eq!(refusal_reason(&mut connection, message_type), RefusalReason::ConnectionUsedUp);
    }
}

/// The reason for a message that may not be decided.
fn undecided_reason(connection: &mut Connection<Session>) -> RefusalReason {
    match now_or_never(connection.ingress(frame("SAY"))).unwrap() {
        Ok(MessageDecision::Accepted(_)) => panic!("accepted"),
        Ok(MessageDecision::Refused(refusal)) => refusal.reason(),
        Err(error) => connection.refuse_undecided(&error).reason(),
    }
}

/// Whichever store rejects the charges of a message, the ceiling is charged once, and nothing else.
#[test]
fn messages_with_an_invalid_key_are_charged_to_the_ceiling_alone() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let shared = FaultyStore::new(MemoryStore::new(), Timing::WhenPolled);
    let remote = Engine::on(StoreHandle::shared(shared));
    for (rules, ceilings) in [
        (&fixture.engine, &fixture.engine),
        (&fixture.engine, &other.engine),
        (&remote, &fixture.engine),
        (&remote, &remote),
    ] {
        let gate = Gate::<Session>::for_types(["SAY"])
            .limit(allowance(rules, "user", 9))
            .limit(MessageRule::new(allowance(rules, "own", 9)).key(connection_key))
            .connection_ceiling(allowance(ceilings, "ceiling", 3))
            .build()
            .unwrap();
        let mut connection = gate.connect(Peer::new(Session::of(&"x".repeat(2_000))).id("c-1"));
        for _ in 0..3 {
            assert_eq!(undecided_reason(&mut connection), RefusalReason::NotChargeable);
        }
        assert_eq!(undecided_reason(&mut connection), RefusalReason::ConnectionUsedUp);
    }
    assert_eq!((fixture.buckets(), other.buckets()), (0, 0), "all connections are gone");
}

/// What the connection was charged in this process before the shared store rejected the message is
/// given back, but for the ceiling.
#[test]
fn own_buckets_are_not_charged_for_an_invalid_key() {
    let shared = FaultyStore::new(MemoryStore::new(), Timing::WhenPolled);
    let engine = Engine::on(StoreHandle::shared(shared));
    let gate = Gate::for_types(["SAY"])
        .limit(allowance(&engine, "user", 99))
        .limit(MessageRule::<Session>::new(allowance(&engine, "own", 2)).key(connection_key))
        .connection_ceiling(allowance(&engine, "ceiling", 5))
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of(&"x".repeat(2_000))));
    for _ in 0..3 {
        assert_eq!(undecided_reason(&mut connection), RefusalReason::NotChargeable);
    }
    *connection.data_mut() = Session::of("alice");
    assert_eq!(accepted_count(&mut connection, "SAY", 99), 2, "its own two, of five less three");
}

#[test]
fn invalid_keys_without_a_ceiling_are_not_chargeable() {
    let fixture = Fixture::new();
    let gate = Gate::for_types(["SAY"]).limit(fixture.limiter("say", 1, 1)).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of(&"x".repeat(2_000))));
    for _ in 0..9 {
        assert_eq!(undecided_reason(&mut connection), RefusalReason::NotChargeable);
    }
    assert_eq!(fixture.buckets(), 0);
}

/// With a guard, an unavailable store is a denial by the rule `closed` and no error. The ceiling
/// stays charged all the same, so that it bounds how often a client makes the server try.
#[tokio::test]
async fn ceiling_bounds_messages_that_the_rule_closed_refuses() {
    let away = FaultyStore::new(MemoryStore::new(), Behaviour::from(Timing::AtOnce).unavailable());
    let engine = Engine::shared(away).unwrap();
    let user = allowance(&engine, "user", 1);
    let gate = Gate::for_types(["SAY"])
        .limit(user.clone())
        .connection_ceiling(Limiter::new(Policy::allowance(3).unwrap()))
        .build()
        .unwrap();
    let reasons = async || {
        let mut connection = gate.connect(Peer::new(Session::of("alice")));
        let mut reasons = Vec::new();
        for _ in 0..5 {
            match connection.ingress(frame("SAY")).await.unwrap() {
                MessageDecision::Accepted(_) => reasons.push(None),
                MessageDecision::Refused(refusal) => reasons.push(Some(refusal.reason())),
            }
        }
        reasons
    };
    user.set_failure_rule(FailureRule::Closed);
    let (closed, used_up) = (RefusalReason::StoreUnavailable, RefusalReason::ConnectionUsedUp);
    assert_eq!(
        reasons().await,
        [Some(closed), Some(closed), Some(closed), Some(used_up), Some(used_up)]
    );
    // What this server's share denies is a limit, and spends nothing of the ceiling.
    user.set_failure_rule(FailureRule::Local);
    let denied = Some(RefusalReason::Rate);
    assert_eq!(reasons().await, [None, denied, denied, denied, denied]);
}
