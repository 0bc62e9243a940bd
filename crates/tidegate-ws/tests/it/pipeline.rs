//! Order of the steps: each refusal comes from the first step that refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate::clock::TokioClock;
use tidegate::{Engine, MemoryStore, Policy, StoreHandle, now_or_never};
use tidegate_core::WallTime;
use tidegate_testkit::faulty_store::{FaultyStore, Timing};
use tidegate_ws::{
    Gate, GateBuilder, MessageDecision, MessageRule, OnExceeded, Peer, RefusalReason, ReplyFrame,
    ValidationError, per_user_key,
};

use crate::fixture::{Fixture, Session, accepted_count, frame, is_accepted, refusal_reason};

fn reason(decision: MessageDecision) -> Option<RefusalReason> {
    match decision {
        MessageDecision::Accepted(_) => None,
        MessageDecision::Refused(refusal) => Some(refusal.reason()),
    }
}

#[test]
fn steps_run_in_the_documented_order() {
    let fixture = Fixture::new();
    let say = fixture.limiter("say", 1, 3);
    let gate = Gate::for_types(["SAY"])
        .max_payload(20)
        .limit(say.clone())
        .max_in_flight(1)
        .validate(|_, _| Err(ValidationError::new("never")))
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let mut send = |frame: &str| reason(now_or_never(connection.ingress(frame)).unwrap().unwrap());
    let remaining = || say.peek("rl:public:alice:SAY").cost(0).now().unwrap().remaining();

    assert_eq!(send("not json and far too large"), Some(RefusalReason::Payload));
    assert_eq!(
        send(r#"{"type":"SAY","x":0}"#),
        Some(RefusalReason::Invalid),
        "20 bytes are allowed"
    );
    assert_eq!(remaining(), 2);
    assert_eq!(send(r#"{"type":"SAY","x":00}"#), Some(RefusalReason::Payload));
    assert_eq!(send("not json"), Some(RefusalReason::Unparseable));
    assert_eq!(remaining(), 2, "neither was charged");
    assert_eq!(send(&frame("SAY")), Some(RefusalReason::Invalid));
    assert_eq!(send(&frame("SAY")), Some(RefusalReason::Invalid));
    assert_eq!(remaining(), 0, "messages refused by validation are charged");
    assert_eq!(send(&frame("SAY")), Some(RefusalReason::Rate), "limits come before validation");
}

#[test]
fn message_over_max_in_flight_is_charged_but_not_validated() {
    let fixture = Fixture::new();
    let say = fixture.limiter("say", 1, 9);
    let validated = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&validated);
    let gate = Gate::for_types(["SAY"])
        .limit(say.clone())
        .max_in_flight(1)
        .validate(move |_, _| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let _in_flight =
        now_or_never(connection.ingress(frame("SAY"))).unwrap().unwrap().accepted().unwrap();
    assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::InFlight);
    assert_eq!(say.peek("rl:public:alice:SAY").cost(0).now().unwrap().remaining(), 7);
    assert_eq!(validated.load(Ordering::SeqCst), 1);
}

#[test]
fn cost_functions_run_once_and_see_the_store_time() {
    let fixture = Fixture::new();
    fixture.clock.set_wall(WallTime::from_secs(1_700_000_000));
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let rule = MessageRule::new(fixture.limiter("say", 1, 9)).cost(move |context| {
        // The client's own timestamp is in the payload, which is not in the context.
        assert_eq!(context.received_at(), WallTime::from_secs(1_700_000_060));
        counter.fetch_add(1, Ordering::SeqCst);
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
    fixture.clock.advance(Duration::from_secs(60));
    let decision = now_or_never(connection.ingress(r#"{"type":"SAY","meta":{"timestamp":1}}"#));
    assert_eq!(reason(decision.unwrap().unwrap()), None);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn type_is_found_at_any_position_and_with_escapes() {
    let fixture = Fixture::new();
    let gate = Gate::for_types(["SAY"]).limit(fixture.limiter("say", 1, 4)).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    let frames: [&[u8]; 4] = [
        br#"{"payload":{"type":"PING","deep":[[[{"type":1}]]]},"type":"SAY"}"#,
        br#" { "type" : "SAY" } "#,
        br#"{"\u0074ype":"S\u0041Y"}"#,
        br#"{"type":"SAY","text":"\ud83d\ude00","n":1e999}"#,
    ];
    for frame in frames {
        let token = now_or_never(connection.ingress(frame)).unwrap().unwrap().accepted().unwrap();
        assert_eq!(token.message_type(), "SAY");
    }
    assert_eq!(
        refusal_reason(&mut connection, "SAY"),
        RefusalReason::Rate,
        "all have the same type"
    );
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let gate = Gate::for_types(["SAY"]).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::default()));
    let deep = "[".repeat(100_000);
    for frame in [format!(r#"{{"x":{deep}"#), deep] {
        assert_eq!(
            reason(now_or_never(connection.ingress(frame)).unwrap().unwrap()),
            Some(RefusalReason::Unparseable)
        );
    }
}

#[test]
fn types_of_a_user_do_not_starve_each_other() {
    let fixture = Fixture::new();
    let gate = Gate::for_types(["A", "B"]).limit(fixture.limiter("say", 1, 5)).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    assert_eq!(accepted_count(&mut connection, "A", 99), 5);
    assert_eq!(accepted_count(&mut connection, "B", 99), 5);
}

/// Ten frames per connection of at most 20 bytes, and one `SAY` per user.
fn ceiling(engine: &Engine) -> GateBuilder<Session> {
    let limiter =
        |name, allowance| engine.limiter(name, Policy::allowance(allowance).unwrap()).unwrap();
    Gate::for_types(["SAY"])
        .max_payload(20)
        .limit(limiter("say", 1))
        .connection_ceiling(limiter("all", 10))
}

const GARBAGE: [&str; 2] = ["garbage", "garbage, and far too much of it"];

#[test]
fn invalid_frames_do_not_bypass_the_ceiling() {
    let fixture = Fixture::new();
    for (garbage, expected) in
        GARBAGE.into_iter().zip([RefusalReason::Unparseable, RefusalReason::Payload])
    {
        let (sender, receiver) = std::sync::mpsc::channel();
        let gate = ceiling(&fixture.engine)
            .on_limit_exceeded(move |exceeded| sender.send(exceeded.limit).unwrap())
            .build()
            .unwrap();
        let mut connection = gate.connect(Peer::new(Session::of("alice")));
        let mut send = || reason(now_or_never(connection.ingress(garbage)).unwrap().unwrap());
        for _ in 0..10 {
            assert_eq!(send(), Some(expected));
        }
        for _ in 0..3 {
            assert_eq!(send(), Some(RefusalReason::ConnectionUsedUp));
        }
        assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::ConnectionUsedUp);
        drop((connection, gate));
        // The hook gets one limit per frame: the size, or the ceiling.
        let limits: Vec<u64> = receiver.iter().collect();
        let sizes = if expected == RefusalReason::Payload { 10 } else { 0 };
        assert_eq!(limits, [vec![20; sizes], vec![10; 4]].concat());
    }
}

#[test]
fn invalid_frames_are_charged_to_the_ceiling_only() {
    let fixture = Fixture::new();
    let gate = ceiling(&fixture.engine).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    for garbage in GARBAGE {
        assert!(reason(now_or_never(connection.ingress(garbage)).unwrap().unwrap()).is_some());
    }
    assert_eq!(fixture.buckets(), 1, "only the bucket of the ceiling");
    assert!(is_accepted(&mut connection, "SAY"));
    assert_eq!(refusal_reason(&mut connection, "SAY"), RefusalReason::AllowanceUsedUp);
}

#[test]
fn invalid_frames_release_the_slot_of_the_ceiling() {
    let fixture = Fixture::new();
    let gate = Gate::<Session>::for_types(["SAY"])
        .connection_ceiling(fixture.limiter_with("all", Policy::concurrency(1, None).unwrap()))
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::default()));
    for _ in 0..3 {
        let decision = now_or_never(connection.ingress("garbage")).unwrap().unwrap();
        assert_eq!(reason(decision), Some(RefusalReason::Unparseable));
        assert!(is_accepted(&mut connection, "SAY"));
    }
}

#[tokio::test]
async fn invalid_frames_are_charged_on_a_shared_store() {
    let shared = FaultyStore::new(MemoryStore::new(), Timing::Deferred);
    let engine = Engine::on(StoreHandle::shared(shared));
    let gate = ceiling(&engine).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    for _ in 0..10 {
        let decision = now_or_never(connection.ingress("garbage"));
        let decision = decision.expect("the ceiling needs no store call").unwrap();
        assert_eq!(reason(decision), Some(RefusalReason::Unparseable));
    }
    let decision = connection.ingress("garbage").await.unwrap();
    assert_eq!(reason(decision), Some(RefusalReason::ConnectionUsedUp));
    // Without a ceiling there is no store call.
    let without_ceiling = Gate::<Session>::for_types(["SAY"]).build().unwrap();
    let decision =
        now_or_never(without_ceiling.connect(Peer::new(Session::default())).ingress("garbage"));
    assert_eq!(reason(decision.unwrap().unwrap()), Some(RefusalReason::Unparseable));
}

#[test]
fn closing_connection_is_refused_without_reply_or_charge() {
    let fixture = Fixture::new();
    let gate =
        ceiling(&fixture.engine).on_exceeded(OnExceeded::Close { code: None }).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")).id("c-1"));
    let reply =
        now_or_never(connection.ingress(GARBAGE[1])).unwrap().unwrap().accepted().unwrap_err();
    assert!(reply.is_close());
    for late in [GARBAGE[0], GARBAGE[1], &frame("SAY")] {
        let MessageDecision::Refused(refusal) =
            now_or_never(connection.ingress(late)).unwrap().unwrap()
        else {
            panic!("accepted")
        };
        assert_eq!(
            (refusal.reason(), refusal.reply()),
            (RefusalReason::Closing, &ReplyFrame::Nothing)
        );
        assert!(!refusal.reply().is_close());
    }
    let all = fixture.limiter_with("all", Policy::allowance(10).unwrap());
    assert_eq!(all.peek("rl:conn:c-1").cost(0).now().unwrap().remaining(), 9);
}

/// Whether a message has one charge or several, a client that sends does not starve a task that
/// waits for the same bucket.
#[tokio::test(start_paused = true)]
async fn messages_do_not_overtake_waiters() {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    let engine = Engine::on(store);
    let policy = Policy::per_second(1).burst(5).build().unwrap();
    let user = engine.limiter("user", policy).unwrap();
    let rule = || MessageRule::<Session>::new(user.clone()).key(per_user_key);
    let one = Gate::for_types(["SAY"]).limit(rule()).build().unwrap();
    let several = Gate::for_types(["SAY"])
        .limit(rule())
        .connection_ceiling(engine.limiter("ceiling", policy).unwrap())
        .build()
        .unwrap();
    drop(user.wait("rl:public:alice").cost(5).await.unwrap());
    let waiter = user.wait("rl:public:alice").cost(2);
    let waiter = tokio::spawn(async move { waiter.await.unwrap().waited() });
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_millis(1_500)).await;
    for gate in [one, several] {
        let mut connection = gate.connect(Peer::new(Session::of("alice")));
        let decision = now_or_never(connection.ingress(frame("SAY"))).unwrap().unwrap();
        let MessageDecision::Refused(refusal) = decision else { panic!("overtook the waiter") };
        // Half a second for the waiter, and one for the message itself.
        assert_eq!(refusal.exceeded().unwrap().retry_after_ms, Some(1_500));
    }
    assert_eq!(waiter.await.unwrap(), Duration::from_secs(2));
}
