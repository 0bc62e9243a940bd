//! What clients see, over real sockets, with both libraries.

use std::sync::mpsc;
use std::time::Duration;

use tidegate_ws::{Gate, GateBuilder, LimitKind, OnExceeded, Peer};

use crate::servers::{BOTH, Library, serve};
use crate::session::{Bench, Session, frame};

const RATE_FRAME: &str = r#"{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Rate limit exceeded","details":{"type":"rate","observed":1,"limit":1},"retryable":true,"retryAfterMs":1500}}"#;
const PAYLOAD_FRAME: &str = r#"{"type":"ERROR","payload":{"code":"FAILED_PRECONDITION","message":"Payload size exceeds limit","details":{"type":"payload","observed":115,"limit":100},"retryable":false}}"#;

/// Long enough that only a hang is longer.
const PATIENCE: Duration = Duration::from_secs(20);

fn too_large() -> String {
    format!(r#"{{"type":"SAY","text":"{}"}}"#, "x".repeat(91))
}

/// A gate for one `SAY` in 1.5 s and messages of 100 bytes; `PING` is not limited.
fn gate(bench: &Bench) -> GateBuilder<Session> {
    let policy = tidegate::Policy::per(2, Duration::from_secs(3)).capacity(1).build().unwrap();
    let rule = tidegate_ws::Rule::new(bench.limiter_of("say", policy))
        .when(|context| context.message_type() == "SAY");
    Gate::for_types(["SAY", "PING"]).limit(rule).max_payload(100)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    Frame(&'static str),
    Close(u16, &'static str),
    Nothing,
}

/// Exceeds one limit on one server under one behaviour, and looks at everything.
async fn exceed(library: Library, kind: LimitKind, behaviour: OnExceeded, seen: Seen) {
    let bench = Bench::new();
    let (tell, told) = mpsc::channel();
    let gate = gate(&bench)
        .on_exceeded(behaviour)
        .on_limit_exceeded(move |exceeded| tell.send(exceeded).unwrap())
        .build()
        .unwrap();
    let peer = |_| Peer::new(Session::of("alice")).id("c-1");
    let server = serve(library, Some(gate), peer).await;
    let mut client = server.client().await;

    assert_eq!(client.ask(&frame("SAY")).await, r#"handled {"type":"SAY"}"#);
    match kind {
        LimitKind::Payload => client.send(&too_large()).await,
        _ => client.send(&frame("SAY")).await,
    }
    match seen {
        Seen::Frame(text) => assert_eq!(client.text().await, text),
        Seen::Close(code, reason) => assert_eq!(client.closed().await, (code, reason.to_owned())),
        Seen::Nothing => {}
    }
    if !matches!(seen, Seen::Close(..)) {
        // What comes next is the answer to this, and the socket is open.
        assert_eq!(client.ask(&frame("PING")).await, r#"handled {"type":"PING"}"#);
    }
    let handled = if matches!(seen, Seen::Close(..)) { 1 } else { 2 };
    assert_eq!((server.handled(), server.errors()), (handled, 0));

    let exceeded = told.recv().unwrap();
    assert_eq!((exceeded.kind, exceeded.client_id.as_str()), (kind, "c-1"));
    match kind {
        LimitKind::Payload => {
            assert_eq!((exceeded.observed, exceeded.limit), (115, 100));
            assert_eq!(exceeded.retry_after_ms, None);
        }
        _ => {
            assert_eq!((exceeded.observed, exceeded.limit), (1, 1));
            assert_eq!(exceeded.retry_after_ms, Some(1_500));
        }
    }
    // The channel ends with the thread of the hook, when gate and connection are gone.
    drop(client);
    server.stop().await;
    let more = tokio::task::spawn_blocking(move || told.iter().count()).await.unwrap();
    assert_eq!(more, 0, "the hook was told twice");
}

#[tokio::test]
async fn either_limit_is_sent_closed_or_left_to_the_application_alike() {
    let (close, custom_code) =
        (OnExceeded::Close { code: None }, OnExceeded::Close { code: Some(4_029) });
    let (rate, payload) = ("rate_limited;retry_after_ms=1500", "payload_exceeded");
    let table = [
        (LimitKind::Rate, OnExceeded::Send, Seen::Frame(RATE_FRAME)),
        (LimitKind::Payload, OnExceeded::Send, Seen::Frame(PAYLOAD_FRAME)),
        (LimitKind::Rate, close, Seen::Close(1013, rate)),
        (LimitKind::Payload, close, Seen::Close(1009, payload)),
        (LimitKind::Rate, custom_code, Seen::Close(4_029, rate)),
        (LimitKind::Payload, custom_code, Seen::Close(4_029, payload)),
        (LimitKind::Rate, OnExceeded::Custom, Seen::Nothing),
        (LimitKind::Payload, OnExceeded::Custom, Seen::Nothing),
    ];
    for library in BOTH {
        for (kind, behaviour, seen) in table {
            exceed(library, kind, behaviour, seen).await;
        }
    }
}

#[tokio::test]
async fn the_hint_is_exact_and_waiting_for_it_is_enough() {
    for library in BOTH {
        let bench = Bench::new();
        let gate = gate(&bench).build().unwrap();
        let server = serve(library, Some(gate), |_| Peer::new(Session::of("alice"))).await;
        let mut client = server.client().await;
        client.ask(&frame("SAY")).await;
        bench.clock.advance(Duration::from_millis(250));
        let answer = client.ask(&frame("SAY")).await;
        assert!(answer.contains(r#""retryable":true,"retryAfterMs":1250}"#), "{answer}");
        bench.clock.advance(Duration::from_nanos(1_249_999_999));
        // A nanosecond is left, and it is told as a whole millisecond.
        let answer = client.ask(&frame("SAY")).await;
        assert!(answer.contains(r#""retryAfterMs":1}"#), "{answer}");
        bench.clock.advance(Duration::from_nanos(1));
        assert_eq!(client.ask(&frame("SAY")).await, r#"handled {"type":"SAY"}"#);
    }
}

#[tokio::test]
async fn binary_frames_are_charged_and_pings_are_not() {
    for library in BOTH {
        let bench = Bench::new();
        let gate = gate(&bench).build().unwrap();
        let server = serve(library, Some(gate), |_| Peer::new(Session::of("alice"))).await;
        let mut client = server.client().await;
        for _ in 0..10 {
            client.ping().await;
        }
        assert_eq!(bench.buckets(), 0);
        client.send_binary(&frame("SAY")).await;
        assert_eq!(client.text().await, r#"handled {"type":"SAY"}"#);
        assert_eq!(client.ask(&frame("SAY")).await, RATE_FRAME);
        client.ping().await;
    }
}

#[tokio::test]
async fn clients_are_told_apart_by_the_address_of_their_socket() {
    for library in BOTH {
        let bench = Bench::new();
        let gate = gate(&bench).build().unwrap();
        let peer = |peer: std::net::SocketAddr| Peer::new(Session::default()).ip(peer.ip());
        let server = serve(library, Some(gate), peer).await;
        // Two connections from one address, nobody logged in: one bucket.
        let (mut one, mut other) = (server.client().await, server.client().await);
        assert_eq!(one.ask(&frame("SAY")).await, r#"handled {"type":"SAY"}"#);
        assert_eq!(other.ask(&frame("SAY")).await, RATE_FRAME);
    }
}

#[tokio::test]
async fn without_a_gate_nothing_changes_and_a_gate_without_limits_limits_nothing() {
    let oddities = ["not json", "", r#"{"type":"SAY"}"#, r#"[1,2]"#];
    for library in BOTH {
        let bare = serve(library, None, |_| Peer::new(Session::default())).await;
        let mut client = bare.client().await;
        for text in oddities {
            assert_eq!(client.ask(text).await, format!("handled {text}"));
        }
        // With a gate, messages that have a type pass one without limits, of any size.
        let gate = Gate::for_any_type().build().unwrap();
        let gated = serve(library, Some(gate), |_| Peer::new(Session::default())).await;
        let mut client = gated.client().await;
        for text in [frame("SAY"), too_large()] {
            assert_eq!(client.ask(&text).await, format!("handled {text}"));
        }
    }
}

#[tokio::test]
async fn what_a_connection_owned_is_forgotten_when_its_client_is_gone() {
    for library in BOTH {
        let bench = Bench::new();
        let ceiling = bench.limiter_of("connection", tidegate::Policy::allowance(2).unwrap());
        let gate = Gate::for_types(["SAY"]).connection_ceiling(ceiling).build().unwrap();
        let mut server = serve(library, Some(gate), |_| Peer::new(Session::default())).await;
        for connection in 1..=3 {
            let mut client = server.client().await;
            client.ask(&frame("SAY")).await;
            client.ask(&frame("SAY")).await;
            let answer = client.ask(&frame("SAY")).await;
            assert!(answer.contains(r#""message":"Connection limit reached""#), "{answer}");
            assert_eq!(bench.buckets(), 1);
            client.close().await;
            server.closed(connection).await;
            assert_eq!(bench.buckets(), 0);
        }
    }
}

/// A client may have sent more before it reads that it is to go: nothing of it is handled.
#[tokio::test]
async fn what_was_under_way_when_a_connection_was_closed_is_not_handled() {
    for library in BOTH {
        let bench = Bench::new();
        let close = OnExceeded::Close { code: None };
        let gate = gate(&bench).on_exceeded(close).build().unwrap();
        let mut server = serve(library, Some(gate), |_| Peer::new(Session::of("alice"))).await;
        let mut client = server.client().await;
        client.send_all(&["SAY", "SAY", "PING", "PING", "nonsense", "PING"].map(frame)).await;
        assert_eq!(client.text().await, r#"handled {"type":"SAY"}"#);
        assert_eq!(client.closed().await.0, 1013);
        drop(client);
        server.closed(1).await;
        assert_eq!(server.handled(), 1);
    }
}

/// A library that goes on reading after it has sent a close frame would wait for the client's own,
/// for as long as the client likes.
#[tokio::test]
async fn a_client_that_does_not_read_its_close_frame_is_closed_all_the_same() {
    for library in BOTH {
        let bench = Bench::new();
        let close = OnExceeded::Close { code: None };
        let gate = gate(&bench).on_exceeded(close).build().unwrap();
        let mut server = serve(library, Some(gate), |_| Peer::new(Session::of("alice"))).await;
        let mut client = server.client().await;
        client.ask(&frame("SAY")).await;
        client.send(&frame("SAY")).await;
        let closed = tokio::time::timeout(PATIENCE, server.closed(1)).await;
        assert!(closed.is_ok(), "{library:?} keeps the connection");
        // It was told why, if it cares to look.
        assert_eq!(client.closed().await.0, 1013);
    }
}
