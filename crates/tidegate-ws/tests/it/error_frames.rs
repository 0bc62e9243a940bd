//! Error frames, byte for byte.

use std::time::Duration;

use tidegate::{Limiter, Policy, now_or_never};
use tidegate_ws::{
    ErrorCode, ErrorFrame, Gate, MessageDecision, MessageRule, Peer, RELEASE_HINT_MS,
    RefusedMessage, ReplyFrame, ValidationError,
};

use crate::fixture::{Fixture, Session, is_accepted, send};

fn refusal(gate: &Gate<Session>, frame: &str) -> RefusedMessage {
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    match now_or_never(connection.ingress(frame)).unwrap().unwrap() {
        MessageDecision::Refused(refusal) => refusal,
        MessageDecision::Accepted(_) => panic!("{frame} was accepted"),
    }
}

fn error_frame(gate: &Gate<Session>, frame: &str) -> String {
    match refusal(gate, frame).into_reply() {
        ReplyFrame::Send(text) => text,
        other => panic!("not a frame: {other:?}"),
    }
}

const SAY: &str = r#"{"type":"SAY"}"#;

fn gate_with_cost(limiter: Limiter, cost: i64) -> Gate<Session> {
    Gate::for_types(["SAY"]).limit(MessageRule::new(limiter).cost(move |_| cost)).build().unwrap()
}

#[test]
fn rate_error_is_retryable() {
    let fixture = Fixture::new();
    let gate = gate_with_cost(fixture.limiter("say", 4, 10), 10);
    assert!(is_accepted(&mut gate.connect(Peer::new(Session::of("alice"))), "SAY"));
    assert_eq!(
        error_frame(&gate, SAY),
        r#"{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Rate limit exceeded","details":{"type":"rate","observed":10,"limit":10},"retryable":true,"retryAfterMs":2500}}"#
    );
}

#[test]
fn cost_above_capacity_is_not_retryable() {
    let gate = gate_with_cost(Fixture::new().limiter("say", 4, 10), 11);
    assert_eq!(
        error_frame(&gate, SAY),
        r#"{"type":"ERROR","payload":{"code":"FAILED_PRECONDITION","message":"Operation cost exceeds rate limit capacity","details":{"type":"rate","observed":11,"limit":10},"retryable":false}}"#
    );
}

#[test]
fn non_positive_cost_is_invalid_argument() {
    let fixture = Fixture::new();
    for cost in [0, -1, i64::MIN] {
        let gate = gate_with_cost(fixture.limiter("say", 4, 10), cost);
        assert_eq!(
            error_frame(&gate, SAY),
            r#"{"type":"ERROR","payload":{"code":"INVALID_ARGUMENT","message":"Rate limit cost must be a positive integer","details":{},"retryable":false}}"#
        );
        assert_eq!(fixture.buckets(), 0);
    }
}

#[test]
fn slot_limit_has_the_fixed_release_hint() {
    let fixture = Fixture::new();
    let gate = Gate::for_types(["SAY"])
        .limit(fixture.limiter_with("slots", Policy::concurrency(1, None).unwrap()))
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let MessageDecision::Accepted(token) = send(&mut connection, "SAY") else { panic!("refused") };
    assert_eq!(RELEASE_HINT_MS, 1_000);
    assert_eq!(
        error_frame(&gate, SAY),
        r#"{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Rate limit exceeded","details":{"type":"rate","observed":1,"limit":1},"retryable":true,"retryAfterMs":1000}}"#
    );
    drop(token);
    assert!(is_accepted(&mut connection, "SAY"));
}

#[test]
fn exhausted_allowances_are_reported() {
    let fixture = Fixture::new();
    let allowance = || fixture.limiter_with("all", Policy::allowance(1).unwrap());
    let by_rule = Gate::for_types(["SAY"]).limit(allowance()).build().unwrap();
    assert!(is_accepted(&mut by_rule.connect(Peer::new(Session::of("alice"))), "SAY"));
    assert_eq!(
        error_frame(&by_rule, SAY),
        r#"{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Allowance used up","details":{"type":"rate","observed":1,"limit":1},"retryable":false}}"#
    );
    let ceiling = Gate::for_types(["SAY"]).connection_ceiling(allowance()).build().unwrap();
    let mut connection = ceiling.connect(Peer::new(Session::of("alice")));
    assert!(is_accepted(&mut connection, "SAY"));
    let MessageDecision::Refused(refusal) = send(&mut connection, "SAY") else {
        panic!("accepted")
    };
    assert_eq!(
        refusal.into_reply(),
        ReplyFrame::Send(r#"{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Connection limit reached","details":{"type":"rate","observed":1,"limit":1},"retryable":false}}"#.into())
    );
}

#[test]
fn frames_without_a_type_are_parse_errors() {
    let gate = Gate::for_types(["SAY"]).build().unwrap();
    let frames = [
        "",
        "SAY",
        "null",
        r#"["SAY"]"#,
        r#"{"type":7}"#,
        r#"{"type":null}"#,
        r#"{"kind":"SAY"}"#,
        r#"{"type":"SAY""#,
        r#"{"type":"SAY"} {}"#,
        r#"{"type":"SAY","type":"PING"}"#,
    ];
    for frame in frames {
        assert_eq!(
            error_frame(&gate, frame),
            r#"{"type":"ERROR","payload":{"code":"PARSE_ERROR","message":"Message type could not be read","details":{},"retryable":false}}"#,
            "{frame}"
        );
    }
}

#[test]
fn validation_error_has_its_own_message() {
    let gate = Gate::for_types(["SAY"])
        .validate(|context, frame| {
            assert_eq!((context.message_type(), frame), ("SAY", SAY.as_bytes()));
            Err(ValidationError::new("text is \"missing\""))
        })
        .build()
        .unwrap();
    assert_eq!(
        error_frame(&gate, SAY),
        r#"{"type":"ERROR","payload":{"code":"VALIDATION_ERROR","message":"text is \"missing\"","details":{},"retryable":false}}"#
    );
}

#[test]
fn zero_hint_is_sent() {
    let frame = ErrorFrame::new(ErrorCode::ResourceExhausted, "now").retry_after(Duration::ZERO);
    assert_eq!(
        frame.to_json(),
        r#"{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"now","details":{},"retryable":true,"retryAfterMs":0}}"#
    );
}

#[test]
fn handler_errors_use_the_same_envelope() {
    assert_eq!(
        ErrorFrame::new(ErrorCode::AuthError, "Not yours").to_json(),
        r#"{"type":"ERROR","payload":{"code":"AUTH_ERROR","message":"Not yours","details":{},"retryable":false}}"#
    );
}

#[test]
fn longest_close_reason_fits() {
    let policy = Policy::per(1, Duration::from_secs(1_000_000_000)).capacity(1).build().unwrap();
    let gate = Gate::for_types(["SAY"])
        .limit(Fixture::new().limiter_with("decades", policy))
        .on_exceeded(tidegate_ws::OnExceeded::Close { code: None })
        .build()
        .unwrap();
    assert!(is_accepted(&mut gate.connect(Peer::new(Session::of("alice"))), "SAY"));
    let ReplyFrame::Close { code, reason } = refusal(&gate, SAY).into_reply() else {
        panic!("not closed")
    };
    assert_eq!((code, &*reason), (1013, "rate_limited;retry_after_ms=1000000000000"));
    assert!(reason.len() <= 123);
}
