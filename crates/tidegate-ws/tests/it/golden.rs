//! The frames, to the byte.

use std::time::Duration;

use tidegate::{Limiter, Policy, now_or_never};
use tidegate_ws::{
    ErrorCode, ErrorFrame, Gate, Invalid, MessageDecision, Peer, RELEASE_HINT_MS, RefusedMessage,
    ReplyFrame, Rule,
};

use crate::session::{Bench, Session, passes, send};

fn refusal(gate: &Gate<Session>, frame: &str) -> RefusedMessage {
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    match now_or_never(connection.ingress(frame)).unwrap().unwrap() {
        MessageDecision::Refused(refusal) => refusal,
        MessageDecision::Accepted(_) => panic!("{frame} was accepted"),
    }
}

fn told(gate: &Gate<Session>, frame: &str) -> String {
    match refusal(gate, frame).into_reply() {
        ReplyFrame::Send(text) => text,
        other => panic!("not a frame: {other:?}"),
    }
}

const SAY: &str = r#"{"type":"SAY"}"#;

fn costing(limiter: Limiter, cost: i64) -> Gate<Session> {
    Gate::for_types(["SAY"]).limit(Rule::new(limiter).cost(move |_| cost)).build().unwrap()
}

#[test]
fn a_message_over_the_rate_may_be_sent_again() {
    let bench = Bench::new();
    let gate = costing(bench.limiter("say", 4, 10), 10);
    assert!(passes(&mut gate.connect(Peer::new(Session::of("alice"))), "SAY"));
    assert_eq!(
        told(&gate, SAY),
        r#"{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Rate limit exceeded","details":{"type":"rate","observed":10,"limit":10},"retryable":true,"retryAfterMs":2500}}"#
    );
}

#[test]
fn a_cost_above_the_capacity_is_not_worth_a_second_try() {
    let gate = costing(Bench::new().limiter("say", 4, 10), 11);
    assert_eq!(
        told(&gate, SAY),
        r#"{"type":"ERROR","payload":{"code":"FAILED_PRECONDITION","message":"Operation cost exceeds rate limit capacity","details":{"type":"rate","observed":11,"limit":10},"retryable":false}}"#
    );
}

#[test]
fn a_cost_that_is_no_positive_number_is_the_applications_mistake() {
    let bench = Bench::new();
    for cost in [0, -1, i64::MIN] {
        let gate = costing(bench.limiter("say", 4, 10), cost);
        assert_eq!(
            told(&gate, SAY),
            r#"{"type":"ERROR","payload":{"code":"INVALID_ARGUMENT","message":"Rate limit cost must be a positive integer","details":{},"retryable":false}}"#
        );
        assert_eq!(bench.buckets(), 0);
    }
}

#[test]
fn a_slot_is_free_when_somebody_is_done_and_clients_come_back_after_a_second() {
    let bench = Bench::new();
    let gate = Gate::for_types(["SAY"])
        .limit(bench.limiter_of("slots", Policy::concurrency(1, None).unwrap()))
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let MessageDecision::Accepted(held) = send(&mut connection, "SAY") else { panic!("refused") };
    assert_eq!(RELEASE_HINT_MS, 1_000);
    assert_eq!(
        told(&gate, SAY),
        r#"{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Rate limit exceeded","details":{"type":"rate","observed":1,"limit":1},"retryable":true,"retryAfterMs":1000}}"#
    );
    drop(held);
    assert!(passes(&mut connection, "SAY"));
}

#[test]
fn allowances_say_that_they_are_used_up() {
    let bench = Bench::new();
    let allowance = || bench.limiter_of("all", Policy::allowance(1).unwrap());
    let by_rule = Gate::for_types(["SAY"]).limit(allowance()).build().unwrap();
    assert!(passes(&mut by_rule.connect(Peer::new(Session::of("alice"))), "SAY"));
    assert_eq!(
        told(&by_rule, SAY),
        r#"{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Allowance used up","details":{"type":"rate","observed":1,"limit":1},"retryable":false}}"#
    );
    let ceiling = Gate::for_types(["SAY"]).connection_ceiling(allowance()).build().unwrap();
    let mut connection = ceiling.connect(Peer::new(Session::of("alice")));
    assert!(passes(&mut connection, "SAY"));
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
            told(&gate, frame),
            r#"{"type":"ERROR","payload":{"code":"PARSE_ERROR","message":"Message type could not be read","details":{},"retryable":false}}"#,
            "{frame}"
        );
    }
}

#[test]
fn validation_speaks_for_itself() {
    let gate = Gate::for_types(["SAY"])
        .validate(|context, frame| {
            assert_eq!((context.message_type(), frame), ("SAY", SAY.as_bytes()));
            Err(Invalid::new("text is \"missing\""))
        })
        .build()
        .unwrap();
    assert_eq!(
        told(&gate, SAY),
        r#"{"type":"ERROR","payload":{"code":"VALIDATION_ERROR","message":"text is \"missing\"","details":{},"retryable":false}}"#
    );
}

#[test]
fn a_hint_of_zero_is_a_hint() {
    let frame = ErrorFrame::new(ErrorCode::ResourceExhausted, "now").retry_after(Duration::ZERO);
    assert_eq!(
        frame.to_json(),
        r#"{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"now","details":{},"retryable":true,"retryAfterMs":0}}"#
    );
}

#[test]
fn handlers_refuse_in_the_same_envelope() {
    assert_eq!(
        ErrorFrame::new(ErrorCode::AuthError, "Not yours").to_json(),
        r#"{"type":"ERROR","payload":{"code":"AUTH_ERROR","message":"Not yours","details":{},"retryable":false}}"#
    );
}

#[test]
fn the_longest_close_reason_fits_into_a_close_frame() {
    let policy = Policy::per(1, Duration::from_secs(1_000_000_000)).capacity(1).build().unwrap();
    let gate = Gate::for_types(["SAY"])
        .limit(Bench::new().limiter_of("decades", policy))
        .on_exceeded(tidegate_ws::OnExceeded::Close { code: None })
        .build()
        .unwrap();
    assert!(passes(&mut gate.connect(Peer::new(Session::of("alice"))), "SAY"));
    let ReplyFrame::Close { code, reason } = refusal(&gate, SAY).into_reply() else {
        panic!("not closed")
    };
    assert_eq!((code, &*reason), (1013, "rate_limited;retry_after_ms=1000000000000"));
    assert!(reason.len() <= 123);
}
