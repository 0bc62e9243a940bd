//! The order of the steps: each refusal comes from the first step that refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use tidegate::{Engine, MemoryStore, Policy, StoreHandle, now_or_never};
use tidegate_core::WallTime;
use tidegate_testkit::faulty_store::{FaultyStore, Timing};
use tidegate_ws::{
    Gate, GateBuilder, Invalid, MessageDecision, OnExceeded, Peer, RefusalReason, ReplyFrame, Rule,
};

use crate::session::{Bench, Session, frame, passes, passing, refused};

fn reason(verdict: MessageDecision) -> Option<RefusalReason> {
    match verdict {
        MessageDecision::Accepted(_) => None,
        MessageDecision::Refused(refusal) => Some(refusal.reason()),
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
    let mut send = |frame: &str| reason(now_or_never(connection.ingress(frame)).unwrap().unwrap());
    let left = || say.peek("rl:public:alice:SAY").cost(0).now().unwrap().remaining();

    assert_eq!(send("not json and far too large"), Some(RefusalReason::Payload));
    assert_eq!(
        send(r#"{"type":"SAY","x":0}"#),
        Some(RefusalReason::Invalid),
        "20 bytes are not too many"
    );
    assert_eq!(left(), 2);
    assert_eq!(send(r#"{"type":"SAY","x":00}"#), Some(RefusalReason::Payload));
    assert_eq!(send("not json"), Some(RefusalReason::Unparseable));
    assert_eq!(left(), 2, "neither was charged");
    assert_eq!(send(&frame("SAY")), Some(RefusalReason::Invalid));
    assert_eq!(send(&frame("SAY")), Some(RefusalReason::Invalid));
    assert_eq!(left(), 0, "what validation refuses was charged");
    assert_eq!(
        send(&frame("SAY")),
        Some(RefusalReason::Rate),
        "limited before it is found invalid"
    );
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
    let _in_flight =
        now_or_never(connection.ingress(frame("SAY"))).unwrap().unwrap().accepted().unwrap();
    assert_eq!(refused(&mut connection, "SAY"), RefusalReason::InFlight);
    assert_eq!(say.peek("rl:public:alice:SAY").cost(0).now().unwrap().remaining(), 7);
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
    let verdict = now_or_never(connection.ingress(r#"{"type":"SAY","meta":{"timestamp":1}}"#));
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
        let token = now_or_never(connection.ingress(frame)).unwrap().unwrap().accepted().unwrap();
        assert_eq!(token.message_type(), "SAY");
    }
    assert_eq!(refused(&mut connection, "SAY"), RefusalReason::Rate, "all were one type");
}

#[test]
fn a_hundred_thousand_brackets_do_not_overflow_the_stack() {
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
fn one_type_does_not_starve_another_of_the_same_user() {
    let bench = Bench::new();
    let gate = Gate::for_types(["A", "B"]).limit(bench.limiter("say", 1, 5)).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    assert_eq!(passing(&mut connection, "A", 99), 5);
    assert_eq!(passing(&mut connection, "B", 99), 5);
}

/// Ten frames in all on a connection, of at most 20 bytes, and one `SAY` of each user.
fn ceiling(engine: &Engine) -> GateBuilder<Session> {
    let limiter = |name, most| engine.limiter(name, Policy::allowance(most).unwrap()).unwrap();
    Gate::for_types(["SAY"])
        .max_payload(20)
        .limit(limiter("say", 1))
        .connection_ceiling(limiter("all", 10))
}

const GARBAGE: [&str; 2] = ["garbage", "garbage, and far too much of it"];

#[test]
fn garbage_does_not_get_around_the_ceiling_of_a_connection() {
    let bench = Bench::new();
    for (garbage, flaw) in
        GARBAGE.into_iter().zip([RefusalReason::Unparseable, RefusalReason::Payload])
    {
        let (tell, told) = std::sync::mpsc::channel();
        let gate = ceiling(&bench.engine)
            .on_limit_exceeded(move |exceeded| tell.send(exceeded.limit).unwrap())
            .build()
            .unwrap();
        let mut connection = gate.connect(Peer::new(Session::of("alice")));
        let mut send = || reason(now_or_never(connection.ingress(garbage)).unwrap().unwrap());
        for _ in 0..10 {
            assert_eq!(send(), Some(flaw));
        }
        for _ in 0..3 {
            assert_eq!(send(), Some(RefusalReason::ConnectionUsedUp));
        }
        assert_eq!(refused(&mut connection, "SAY"), RefusalReason::ConnectionUsedUp);
        drop((connection, gate));
        // The hook is told of one limit for each frame: the size, or the ceiling.
        let told: Vec<u64> = told.iter().collect();
        let sizes = if flaw == RefusalReason::Payload { 10 } else { 0 };
        assert_eq!(told, [vec![20; sizes], vec![10; 4]].concat());
    }
}

#[test]
fn garbage_is_charged_to_the_ceiling_and_to_nothing_else() {
    let bench = Bench::new();
    let gate = ceiling(&bench.engine).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    for garbage in GARBAGE {
        assert!(reason(now_or_never(connection.ingress(garbage)).unwrap().unwrap()).is_some());
    }
    assert_eq!(bench.buckets(), 1, "only that of the ceiling");
    assert!(passes(&mut connection, "SAY"));
    assert_eq!(refused(&mut connection, "SAY"), RefusalReason::AllowanceUsedUp);
}

#[test]
fn garbage_gives_back_the_slot_of_a_ceiling_that_counts_slots() {
    let bench = Bench::new();
    let gate = Gate::<Session>::for_types(["SAY"])
        .connection_ceiling(bench.limiter_of("all", Policy::concurrency(1, None).unwrap()))
        .build()
        .unwrap();
    let mut connection = gate.connect(Peer::new(Session::default()));
    for _ in 0..3 {
        let verdict = now_or_never(connection.ingress("garbage")).unwrap().unwrap();
        assert_eq!(reason(verdict), Some(RefusalReason::Unparseable));
        assert!(passes(&mut connection, "SAY"));
    }
}

#[tokio::test]
async fn garbage_is_charged_on_a_store_that_is_waited_for() {
    let distant = FaultyStore::new(MemoryStore::new(), Timing::Deferred);
    let engine = Engine::on(StoreHandle::shared(distant));
    let gate = ceiling(&engine).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")));
    for _ in 0..10 {
        let mut ingress = Box::pin(connection.ingress("garbage"));
        let first = ingress.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(first.is_pending(), "the ceiling has to be asked");
        let verdict = ingress.await.unwrap();
        assert_eq!(reason(verdict), Some(RefusalReason::Unparseable));
    }
    let verdict = connection.ingress("garbage").await.unwrap();
    assert_eq!(reason(verdict), Some(RefusalReason::ConnectionUsedUp));
    // Without a ceiling there is nothing to ask.
    let bare = Gate::<Session>::for_types(["SAY"]).build().unwrap();
    let verdict = now_or_never(bare.connect(Peer::new(Session::default())).ingress("garbage"));
    assert_eq!(reason(verdict.unwrap().unwrap()), Some(RefusalReason::Unparseable));
}

#[test]
fn who_was_told_to_go_is_refused_without_a_word_and_without_a_charge() {
    let bench = Bench::new();
    let gate =
        ceiling(&bench.engine).on_exceeded(OnExceeded::Close { code: None }).build().unwrap();
    let mut connection = gate.connect(Peer::new(Session::of("alice")).id("c-1"));
    let told =
        now_or_never(connection.ingress(GARBAGE[1])).unwrap().unwrap().accepted().unwrap_err();
    assert!(told.is_close());
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
    let all = bench.limiter_of("all", Policy::allowance(10).unwrap());
    assert_eq!(all.peek("rl:conn:c-1").cost(0).now().unwrap().remaining(), 9);
}
