//! Limits that applications implement themselves, and their equivalents in the gate.

use std::collections::HashMap;
use std::time::Duration;

use tidegate::{Policy, now_or_never};
use tidegate_ws::{
    Connection, ErrorCode, ErrorFrame, Gate, MessageDecision, MessageRule, Peer, RefusalReason,
    ReplyFrame, UNKNOWN_TYPE, per_user_key,
};

use crate::fixture::{Fixture, Session, accepted_count, frame, refusal_reason, send};

/// Ten messages per second with a fixed hint, in the handler, behind a gate without limits.
#[test]
fn handler_limit_uses_the_envelope_of_the_gate() {
    let fixture = Fixture::new();
    let window = fixture.limiter("window", 10, 10);
    let gate = Gate::for_types(["SAY"]).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let handle = |connection: &mut Connection<Session>| {
        let MessageDecision::Accepted(_token) = send(connection, "SAY") else { panic!("refused") };
        let key = per_user_key(&connection.context("SAY")).to_key();
        window.take(&key).now().unwrap().is_allowed().then_some(()).ok_or_else(|| {
            ErrorFrame::new(ErrorCode::ResourceExhausted, "Max 10 messages/sec")
                .retry_after(Duration::from_millis(100))
                .to_json()
        })
    };
    let mut handled = 0;
    let refused = loop {
        match handle(&mut connection) {
            Ok(()) => handled += 1,
            Err(frame) => break frame,
        }
    };
    assert_eq!(handled, 10);
    assert_eq!(
        refused,
        r#"{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Max 10 messages/sec","details":{},"retryable":true,"retryAfterMs":100}}"#
    );
}

#[test]
fn rule_can_apply_to_one_type() {
    let fixture = Fixture::new();
    let rule = MessageRule::new(fixture.limiter("send", 1, 2))
        .when(|context| context.message_type() == "SendMessage");
    let gate = Gate::for_types(["SendMessage", "PING"]).limit(rule).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    assert_eq!(accepted_count(&mut connection, "SendMessage", 9), 2);
    assert_eq!(accepted_count(&mut connection, "PING", 500), 500);
    assert_eq!(accepted_count(&mut connection, "what", 500), 500);
}

#[test]
fn counter_in_connection_data_equals_the_ceiling() {
    // By the application.
    struct Counted(u32);
    impl tidegate_ws::Identity for Counted {}
    let gate = Gate::for_types(["SAY"]).build().unwrap();
    let mut connection = gate.connect(Peer::new(Counted(0)));
    let by_application = loop {
        let MessageDecision::Accepted(_token) = send(&mut connection, "SAY") else {
            panic!("refused")
        };
        connection.data_mut().0 += 1;
        if connection.data().0 > 1_000 {
            break ErrorFrame::new(ErrorCode::ResourceExhausted, "Connection limit reached")
                .to_json();
        }
    };
    assert_eq!(connection.data().0, 1_001);

    // By the gate.
    let fixture = Fixture::new();
    let ceiling = fixture.limiter_with("connection", Policy::allowance(1_000).unwrap());
    let gate = Gate::for_types(["SAY"]).connection_ceiling(ceiling).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::default()));
    assert_eq!(accepted_count(&mut connection, "SAY", 2_000), 1_000);
    let MessageDecision::Refused(refusal) = send(&mut connection, "SAY") else {
        panic!("accepted")
    };
    let ReplyFrame::Send(by_gate) = refusal.into_reply() else { panic!("no frame") };
    let without_details = |frame: &str| {
        let mut frame: serde_json::Value = serde_json::from_str(frame).unwrap();
        frame["payload"]["details"] = serde_json::Value::Null;
        frame
    };
    assert_eq!(without_details(&by_application), without_details(&by_gate));
}

#[test]
fn migration_from_a_counter_map_keeps_the_error_code() {
    // Before: a map from user to count, and an error after ten.
    let mut counts: HashMap<&str, u32> = HashMap::new();
    let mut before = |user: &'static str| {
        let count = counts.entry(user).or_default();
        if *count >= 10 {
            return Some("RESOURCE_EXHAUSTED");
        }
        *count += 1;
        None
    };
    // After: the same limit in a gate.
    let fixture = Fixture::new();
    let rule = MessageRule::new(fixture.limiter("messages", 1, 10)).key(per_user_key);
    let gate = Gate::for_types(["SAY"]).limit(rule).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    for _ in 0..12 {
        let after = match send(&mut connection, "SAY") {
            MessageDecision::Accepted(_) => None,
            MessageDecision::Refused(refusal) => Some(refusal.code()),
        };
        assert_eq!(
            before("alice"),
            after.map(|code| match code {
                ErrorCode::ResourceExhausted => "RESOURCE_EXHAUSTED",
                other => panic!("{other:?}"),
            })
        );
    }
}

#[test]
fn application_can_reset_user_buckets() {
    let fixture = Fixture::new();
    let limiter = fixture.limiter("say", 1, 2);
    let gate = Gate::for_types(["SAY"]).limit(limiter.clone()).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    assert_eq!(accepted_count(&mut connection, "SAY", 9), 2);
    let key = tidegate_ws::key_per_user_per_type(&connection.context("SAY")).to_key();
    drop(connection);
    assert_eq!(fixture.buckets(), 1);
    assert!(limiter.reset(&key).now().unwrap());
    assert_eq!(fixture.buckets(), 0);
}

#[test]
fn accepted_message_has_the_counted_type() {
    let gate = Gate::for_types(["SAY"]).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::default()));
    for (sent, counted) in [("SAY", "SAY"), ("say", UNKNOWN_TYPE), ("*", UNKNOWN_TYPE)] {
        let token = send(&mut connection, sent).accepted().unwrap();
        assert_eq!(token.message_type(), counted);
    }
    let gate = Gate::for_any_type().build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::default()));
    let long = "x".repeat(129);
    for (sent, counted) in [("SAY", "SAY"), ("", UNKNOWN_TYPE), (&*long, UNKNOWN_TYPE)] {
        let token =
            now_or_never(connection.ingress(frame(sent))).unwrap().unwrap().accepted().unwrap();
        assert_eq!(token.message_type(), counted);
    }
}

#[test]
fn messages_in_flight_are_counted_per_connection() {
    let gate = Gate::for_types(["SAY"]).max_in_flight(2).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let mut other = gate.connect(Peer::new(Session::of("alice")));
    let first = send(&mut connection, "SAY");
    let _second = send(&mut connection, "SAY");
    assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::InFlight);
    let MessageDecision::Refused(refusal) = send(&mut connection, "SAY") else {
        panic!("accepted")
    };
    assert_eq!(
        refusal.into_reply(),
        ReplyFrame::Send(r#"{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Too many messages in flight","details":{"type":"in_flight","observed":3,"limit":2},"retryable":true,"retryAfterMs":1000}}"#.into())
    );
    assert_eq!(accepted_count(&mut other, "SAY", 9), 9);
    // Refused messages do not count: one that is done admits exactly one.
    drop(first);
    let _third = send(&mut connection, "SAY").accepted().unwrap();
    assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::InFlight);
}
