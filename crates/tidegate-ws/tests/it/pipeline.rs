//! The order of the steps: each refusal comes from the first step that refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate::WallTime;
use tidegate_ws::{Gate, Invalid, Peer, Reason, Rule, Verdict};

use crate::session::{Bench, Session, frame, passing, refused};

fn reason(verdict: Verdict) -> Option<Reason> {
    match verdict {
        Verdict::Accepted(_) => None,
        Verdict::Refused(refusal) => Some(refusal.reason()),
    }
}

#[test]
fn size_comes_before_type_before_rate_before_flight_before_validation() {
    let bench = Bench::new();
    let say = bench.limiter("say", 1, 3);
    let gate = Gate::for_types(["SAY"])
        .max_payload(20)
        .limit(say.clone())
        .max_in_flight(1)
        .validate(|_, _| Err(Invalid::new("never")))
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let mut send = |frame: &str| reason(connection.ingress_now(frame).unwrap().unwrap());
    let left = || say.peek("rl:public:alice:SAY").cost(0).now().remaining();

    assert_eq!(send("not json and far too large"), Some(Reason::Payload));
    assert_eq!(send(r#"{"type":"SAY","x":0}"#), Some(Reason::Invalid), "20 bytes are not too many");
    assert_eq!(left(), 2);
    assert_eq!(send(r#"{"type":"SAY","x":00}"#), Some(Reason::Payload));
    assert_eq!(send("not json"), Some(Reason::Unparseable));
    assert_eq!(left(), 2, "neither was charged");
    assert_eq!(send(&frame("SAY")), Some(Reason::Invalid));
    assert_eq!(send(&frame("SAY")), Some(Reason::Invalid));
    assert_eq!(left(), 0, "what validation refuses was charged");
    assert_eq!(send(&frame("SAY")), Some(Reason::Rate), "limited before it is found invalid");
}

#[test]
fn what_is_over_the_quota_in_flight_was_charged_and_not_validated() {
    let bench = Bench::new();
    let say = bench.limiter("say", 1, 9);
    let validated = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&validated);
    let gate = Gate::for_types(["SAY"])
        .limit(say.clone())
        .max_in_flight(1)
        .validate(move |_, _| {
            counting.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let _in_flight = connection.ingress_now(frame("SAY")).unwrap().unwrap().accepted().unwrap();
    assert_eq!(refused(&mut connection, "SAY"), Reason::InFlight);
    assert_eq!(say.peek("rl:public:alice:SAY").cost(0).now().remaining(), 7);
    assert_eq!(validated.load(Ordering::SeqCst), 1);
}

#[test]
fn functions_run_once_a_message_and_in_the_time_of_the_store() {
    let bench = Bench::new();
    bench.clock.set_wall(WallTime::from_secs(1_700_000_000));
    let seen = Arc::new(AtomicUsize::new(0));
    let seeing = Arc::clone(&seen);
    let rule = Rule::new(bench.limiter("say", 1, 9)).cost(move |context| {
        // What the client says of the time is in the payload, and that is not here.
        assert_eq!(context.received_at(), WallTime::from_secs(1_700_000_060));
        seeing.fetch_add(1, Ordering::SeqCst);
        1
    });
    let gate = Gate::for_types(["SAY"])
        .limit(rule)
        .validate(|context, _| {
            assert_eq!(context.received_at(), WallTime::from_secs(1_700_000_060));
            Ok(())
        })
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    bench.clock.advance(Duration::from_secs(60));
    let verdict = connection.ingress_now(r#"{"type":"SAY","meta":{"timestamp":1}}"#);
    assert_eq!(reason(verdict.unwrap().unwrap()), None);
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

#[test]
fn types_are_found_wherever_they_stand_and_however_they_are_spelled() {
    let bench = Bench::new();
    let gate = Gate::for_types(["SAY"]).limit(bench.limiter("say", 1, 4)).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let frames: [&[u8]; 4] = [
        br#"{"payload":{"type":"PING","deep":[[[{"type":1}]]]},"type":"SAY"}"#,
        br#" { "type" : "SAY" } "#,
        br#"{"\u0074ype":"S\u0041Y"}"#,
        br#"{"type":"SAY","text":"\ud83d\ude00","n":1e999}"#,
    ];
    for frame in frames {
        let token = connection.ingress_now(frame).unwrap().unwrap().accepted().unwrap();
        assert_eq!(token.message_type(), "SAY");
    }
    assert_eq!(refused(&mut connection, "SAY"), Reason::Rate, "all were one type");
}

#[test]
fn a_hundred_thousand_brackets_do_not_overflow_the_stack() {
    let gate = Gate::for_types(["SAY"]).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::default()));
    let deep = "[".repeat(100_000);
    for frame in [format!(r#"{{"x":{deep}"#), deep] {
        assert_eq!(
            reason(connection.ingress_now(frame).unwrap().unwrap()),
            Some(Reason::Unparseable)
        );
    }
}

#[test]
fn one_type_does_not_starve_another_of_the_same_user() {
    let bench = Bench::new();
    let gate = Gate::for_types(["A", "B"]).limit(bench.limiter("say", 1, 5)).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    assert_eq!(passing(&mut connection, "A", 99), 5);
    assert_eq!(passing(&mut connection, "B", 99), 5);
}
