//! Gates that could not work are not built.

use std::sync::Arc;

use tidegate::{Engine, Limiter, MemoryStore, Policy, now_or_never};
use tidegate_ws::{BuildError, Gate, OnExceeded, Rule};

use crate::session::{Bench, Session};

fn refused(builder: tidegate_ws::GateBuilder<Session>) -> String {
    builder.build().unwrap_err().to_string()
}

#[test]
fn types_are_declared_and_can_be_told_from_unknown_ones() {
    let none: [&str; 0] = [];
    assert!(refused(Gate::for_types(none)).starts_with("gate declares no message type"));
    for odd in ["", "*", &"x".repeat(129)] {
        assert!(matches!(
            Gate::<Session>::for_types(["SAY", odd]).build(),
            Err(BuildError::Type(name)) if &*name == odd
        ));
    }
    assert!(Gate::<Session>::for_types([&*"x".repeat(128)]).build().is_ok());
}

#[test]
fn limiters_that_are_charged_together_share_a_store() {
    let (one, other) = (Bench::new(), Bench::new());
    let builder = Gate::for_types(["SAY"])
        .limit(one.limiter("one", 1, 1))
        .limit(other.limiter("other", 1, 1));
    assert_eq!(
        refused(builder),
        r#"limiters "one" and "other" are not on the same store, so they cannot be charged together; make both with the same engine"#
    );
    // Also those that only some messages are charged by, and the ceiling.
    let chained = Rule::new(one.limiter("a", 1, 1)).otherwise(other.limiter("b", 1, 1));
    assert!(matches!(
        Gate::<Session>::for_types(["SAY"]).limit(chained).build(),
        Err(BuildError::Stores(..))
    ));
    let builder = Gate::<Session>::for_types(["SAY"])
        .limit(one.limiter("c", 1, 1))
        .connection_ceiling(other.limiter("d", 1, 1));
    assert!(matches!(builder.build(), Err(BuildError::Stores(..))));
    // Any store will do, if it is one.
    let engine: Engine = Engine::on(Arc::new(MemoryStore::new()));
    let policy = Policy::per_second(1).build().unwrap();
    let gate = Gate::<Session>::for_types(["SAY"])
        .limit(engine.limiter("a", policy).unwrap())
        .connection_ceiling(engine.limiter("b", policy).unwrap());
    assert!(gate.build().is_ok());
}

#[test]
fn a_message_is_charged_by_sixteen_limits_at_most() {
    let bench = Bench::new();
    let with = |rules: usize| {
        let limiter = bench.limiter("say", 1, 1);
        (0..rules).fold(Gate::<Session>::for_types(["SAY"]), |gate, _| gate.limit(limiter.clone()))
    };
    assert!(with(16).build().is_ok());
    assert!(matches!(with(17).build(), Err(BuildError::TooManyRules(17))));
    let ceiling = with(16).connection_ceiling(bench.limiter("ceiling", 1, 1));
    assert!(matches!(ceiling.build(), Err(BuildError::TooManyRules(17))));
}

#[test]
fn close_codes_are_ones_that_a_server_may_send() {
    let with = |code| {
        let close = OnExceeded::Close { code: Some(code) };
        Gate::<Session>::for_types(["SAY"]).on_exceeded(close).build()
    };
    for code in [1000, 1003, 1007, 1008, 1013, 1014, 3000, 4999] {
        assert!(with(code).is_ok(), "{code}");
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000] {
        assert!(matches!(with(code), Err(BuildError::CloseCode(odd)) if odd == code), "{code}");
    }
}

#[test]
fn limits_that_let_nothing_pass_are_mistakes() {
    let say = || Gate::<Session>::for_types(["SAY"]);
    assert_eq!(
        refused(say().max_payload(0)),
        "max_payload must be at least 1: with 0 no message would pass"
    );
    assert!(matches!(say().max_in_flight(0).build(), Err(BuildError::Zero("max_in_flight"))));
}

#[test]
fn nothing_shows_whom_it_is_about() {
    let limiter = Limiter::new(Policy::per_second(1).build().unwrap());
    let gate = Gate::for_types(["SAY"]).limit(limiter).max_payload(10).build().unwrap();
    let peer = tidegate_ws::Peer::new(Session::of("alice"))
        .id("secret-id")
        .ip("203.0.113.9".parse().unwrap());
    let mut shown = format!("{peer:?}");
    let mut connection = gate.connect(peer);
    shown += &format!("{:?} {:?} {gate:?}", connection, connection.context("SAY"));
    shown += &format!("{:?}", connection.context("SAY").connection_key());
    shown +=
        &format!("{:?}", now_or_never(connection.ingress(r#"{"type":"SAY"}"#)).unwrap().unwrap());
    for name in ["alice", "secret-id", "203.0.113.9"] {
        assert!(!shown.contains(name), "{shown}");
    }
}
