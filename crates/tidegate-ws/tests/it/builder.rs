//! Invalid gates are rejected when they are built.

use std::sync::Arc;

use tidegate::{Engine, Limiter, MemoryStore, Policy, now_or_never};
use tidegate_ws::{BuildError, Gate, MessageRule, OnExceeded, key_per_user_per_type, per_user_key};

use crate::fixture::{Fixture, Session};

fn build_error(builder: tidegate_ws::GateBuilder<Session>) -> String {
    builder.build().unwrap_err().to_string()
}

#[test]
fn invalid_type_names_are_rejected() {
    let none: [&str; 0] = [];
    assert!(build_error(Gate::for_types(none)).starts_with("gate declares no message type"));
    for invalid in ["", "*", &"x".repeat(129)] {
        assert!(matches!(
            Gate::<Session>::for_types(["SAY", invalid]).build(),
            Err(BuildError::Type(name)) if &*name == invalid
        ));
    }
    assert!(Gate::<Session>::for_types([&*"x".repeat(128)]).build().is_ok());
}

/// R228: with the default key, every type that a client invents is a new, full bucket.
#[test]
fn invented_types_need_another_limit() {
    let fixture = Fixture::new();
    let say = || fixture.limiter("say", 1, 1);
    let any = Gate::<Session>::for_any_type;
    let by_user = || MessageRule::<Session>::new(say()).key(per_user_key);
    let premium = || by_user().when(|context| context.data().tier == "premium");
    for unlimited in [
        any().limit(say()),
        any().limit(MessageRule::new(say()).when(|_| true)).limit(say()),
        any().limit(premium().otherwise(say())),
        any().limit(say()).max_in_flight(1),
        any().limit(say()).limit(premium()),
    ] {
        assert_eq!(
            build_error(unlimited),
            "clients can invent types, and the default key contains the type, so nothing limits \
             them; declare the types with `for_types`, add a `connection_ceiling`, or set a key, \
             such as `per_user_key`"
        );
    }
    for limited in [
        any(),
        any().limit(by_user()),
        any().limit_by(say(), key_per_user_per_type),
        any().limit(say()).limit(by_user()),
        any().limit(premium()),
        any().limit(premium().otherwise(by_user())),
        any().limit(say()).connection_ceiling(say()),
        Gate::for_types(["SAY"]).limit(say()),
    ] {
        assert!(limited.build().is_ok());
    }
}

#[test]
fn limiters_must_share_a_store() {
    let (one, other) = (Fixture::new(), Fixture::new());
    let builder = Gate::for_types(["SAY"])
        .limit(one.limiter("one", 1, 1))
        .limit(other.limiter("other", 1, 1));
    assert_eq!(
        build_error(builder),
        r#"limiters "one" and "other" are not on the same store, so they cannot be charged together; create both with the same engine"#
    );
    // Also chained rules.
    let chained = MessageRule::new(one.limiter("a", 1, 1)).otherwise(other.limiter("b", 1, 1));
    assert!(matches!(
        Gate::<Session>::for_types(["SAY"]).limit(chained).build(),
        Err(BuildError::Stores(..))
    ));
    // The ceiling may be on another one.
    let builder = Gate::<Session>::for_types(["SAY"])
        .limit(one.limiter("c", 1, 1))
        .connection_ceiling(other.limiter("d", 1, 1));
    assert!(builder.build().is_ok());
    // Any single store is fine.
    let engine: Engine = Engine::on(Arc::new(MemoryStore::new()));
    let policy = Policy::per_second(1).build().unwrap();
    let gate = Gate::<Session>::for_types(["SAY"])
        .limit(engine.limiter("a", policy).unwrap())
        .connection_ceiling(engine.limiter("b", policy).unwrap());
    assert!(gate.build().is_ok());
}

#[test]
fn at_most_sixteen_limits_per_message() {
    let fixture = Fixture::new();
    let with = |rules: usize| {
        let limiter = fixture.limiter("say", 1, 1);
        (0..rules).fold(Gate::<Session>::for_types(["SAY"]), |gate, _| gate.limit(limiter.clone()))
    };
    assert!(with(16).build().is_ok());
    assert!(matches!(with(17).build(), Err(BuildError::TooManyRules(17))));
    let ceiling = with(16).connection_ceiling(fixture.limiter("ceiling", 1, 1));
    assert!(matches!(ceiling.build(), Err(BuildError::TooManyRules(17))));
}

#[test]
fn invalid_close_codes_are_rejected() {
    let with = |code| {
        let close = OnExceeded::Close { code: Some(code) };
        Gate::<Session>::for_types(["SAY"]).on_exceeded(close).build()
    };
    for code in [1000, 1003, 1007, 1008, 1013, 1014, 3000, 4999] {
        assert!(with(code).is_ok(), "{code}");
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000] {
        assert!(
            matches!(with(code), Err(BuildError::CloseCode(invalid)) if invalid == code),
            "{code}"
        );
    }
}

#[test]
fn zero_maximums_are_rejected() {
    let say = || Gate::<Session>::for_types(["SAY"]);
    assert_eq!(
        build_error(say().max_payload(0)),
        "max_payload must be at least 1; with 0 no message would pass"
    );
    assert!(matches!(
        say().max_in_flight(0).build(),
        Err(BuildError::ZeroMaximum("max_in_flight"))
    ));
}

#[test]
fn debug_output_hides_identities() {
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
