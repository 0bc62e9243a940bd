//! What clients receive over real sockets, with both libraries.

use std::sync::mpsc;
use std::time::Duration;

use tidegate_ws::{Gate, GateBuilder, LimitKind, OnExceeded, Peer};

use crate::fixture::{Fixture, Session, frame};
use crate::servers::{BOTH, Library, serve};

const RATE_FRAME: &str = r#"{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Rate limit exceeded","details":{"type":"rate","observed":1,"limit":1},"retryable":true,"retryAfterMs":1500}}"#;
const PAYLOAD_FRAME: &str = r#"{"type":"ERROR","payload":{"code":"FAILED_PRECONDITION","message":"Payload size exceeds limit","details":{"type":"payload","observed":115,"limit":100},"retryable":false}}"#;

/// Long enough to be exceeded only by a hang.
const TIMEOUT: Duration = Duration::from_secs(20);

fn too_large() -> String {
    format!(r#"{{"type":"SAY","text":"{}"}}"#, "x".repeat(91))
}

/// A gate for one `SAY` in 1.5 s and messages of 100 bytes; `PING` is not limited.
fn gate(fixture: &Fixture) -> GateBuilder<Session> {
    let policy = tidegate::Policy::per(2, Duration::from_secs(3)).capacity(1).build().unwrap();
    let rule = tidegate_ws::MessageRule::new(fixture.limiter_with("say", policy))
        .when(|context| context.message_type() == "SAY");
    Gate::for_types(["SAY", "PING"]).limit(rule).max_payload(100)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected {
    Frame(&'static str),
    Close(u16, &'static str),
    Nothing,
}

/// Exceeds one limit on one server with one action, and checks every effect.
async fn exceed(library: Library, kind: LimitKind, action: OnExceeded, expected: Expected) {
    let fixture = Fixture::new();
    let (sender, receiver) = mpsc::channel();
    let gate = gate(&fixture)
        .on_exceeded(action)
        .on_limit_exceeded(move |exceeded| sender.send(exceeded).unwrap())
        .build()
        .unwrap();
    let peer = |_| Peer::new(Session::of("alice")).id("c-1");
    let server = serve(library, Some(gate), peer).await;
    let mut client = server.client().await;

    assert_eq!(client.request(&frame("SAY")).await, r#"handled {"type":"SAY"}"#);
    match kind {
        LimitKind::Payload => client.send(&too_large()).await,
        _ => client.send(&frame("SAY")).await,
    }
    match expected {
        Expected::Frame(text) => assert_eq!(client.text().await, text),
        Expected::Close(code, reason) => {
            assert_eq!(client.closed().await, (code, reason.to_owned()));
        }
        Expected::Nothing => {}
    }
    if !matches!(expected, Expected::Close(..)) {
        // The next message is the reply to this one: the socket is open.
        assert_eq!(client.request(&frame("PING")).await, r#"handled {"type":"PING"}"#);
    }
    let handled_count = if matches!(expected, Expected::Close(..)) { 1 } else { 2 };
    assert_eq!((server.handled_count(), server.error_count()), (handled_count, 0));

    let exceeded = receiver.recv().unwrap();
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
    // The channel closes with the hook thread, when gate and connection are dropped.
    drop(client);
    server.stop().await;
    let more = tokio::task::spawn_blocking(move || receiver.iter().count()).await.unwrap();
    assert_eq!(more, 0, "the hook was called twice");
}

#[tokio::test]
async fn both_limit_kinds_support_every_action() {
    let (close, custom_code) =
        (OnExceeded::Close { code: None }, OnExceeded::Close { code: Some(4_029) });
    let (rate, payload) = ("rate_limited;retry_after_ms=1500", "payload_exceeded");
    let table = [
        (LimitKind::Rate, OnExceeded::Send, Expected::Frame(RATE_FRAME)),
        (LimitKind::Payload, OnExceeded::Send, Expected::Frame(PAYLOAD_FRAME)),
        (LimitKind::Rate, close, Expected::Close(1013, rate)),
        (LimitKind::Payload, close, Expected::Close(1009, payload)),
        (LimitKind::Rate, custom_code, Expected::Close(4_029, rate)),
        (LimitKind::Payload, custom_code, Expected::Close(4_029, payload)),
        (LimitKind::Rate, OnExceeded::Custom, Expected::Nothing),
        (LimitKind::Payload, OnExceeded::Custom, Expected::Nothing),
    ];
    for library in BOTH {
        for (kind, action, expected) in table {
            exceed(library, kind, action, expected).await;
        }
    }
}

#[tokio::test]
async fn hint_is_exact_and_sufficient() {
    for library in BOTH {
        let fixture = Fixture::new();
        let gate = gate(&fixture).build().unwrap();
        let server = serve(library, Some(gate), |_| Peer::new(Session::of("alice"))).await;
        let mut client = server.client().await;
        client.request(&frame("SAY")).await;
        fixture.clock.advance(Duration::from_millis(250));
        let reply = client.request(&frame("SAY")).await;
        assert!(reply.contains(r#""retryable":true,"retryAfterMs":1250}"#), "{reply}");
        fixture.clock.advance(Duration::from_nanos(1_249_999_999));
        // One nanosecond is left, rounded up to a millisecond.
        let reply = client.request(&frame("SAY")).await;
        assert!(reply.contains(r#""retryAfterMs":1}"#), "{reply}");
        fixture.clock.advance(Duration::from_nanos(1));
        assert_eq!(client.request(&frame("SAY")).await, r#"handled {"type":"SAY"}"#);
    }
}

#[tokio::test]
async fn binary_frames_are_charged_and_pings_are_not() {
    for library in BOTH {
        let fixture = Fixture::new();
        let gate = gate(&fixture).build().unwrap();
        let server = serve(library, Some(gate), |_| Peer::new(Session::of("alice"))).await;
        let mut client = server.client().await;
        for _ in 0..10 {
            client.ping().await;
        }
        assert_eq!(fixture.buckets(), 0);
        client.send_binary(&frame("SAY")).await;
        assert_eq!(client.text().await, r#"handled {"type":"SAY"}"#);
        assert_eq!(client.request(&frame("SAY")).await, RATE_FRAME);
        client.ping().await;
    }
}

#[tokio::test]
async fn anonymous_clients_of_one_address_share_a_bucket() {
    for library in BOTH {
        let fixture = Fixture::new();
        let gate = gate(&fixture).build().unwrap();
        let peer = |peer: std::net::SocketAddr| Peer::new(Session::default()).ip(peer.ip());
        let server = serve(library, Some(gate), peer).await;
        // Two anonymous connections from one address share one bucket.
        let (mut one, mut other) = (server.client().await, server.client().await);
        assert_eq!(one.request(&frame("SAY")).await, r#"handled {"type":"SAY"}"#);
        assert_eq!(other.request(&frame("SAY")).await, RATE_FRAME);
    }
}

#[tokio::test]
async fn gate_without_limits_limits_nothing() {
    let frames = ["not json", "", r#"{"type":"SAY"}"#, r#"[1,2]"#];
    for library in BOTH {
        let ungated = serve(library, None, |_| Peer::new(Session::default())).await;
        let mut client = ungated.client().await;
        for text in frames {
            assert_eq!(client.request(text).await, format!("handled {text}"));
        }
        // A gate without limits accepts messages with a type, of any size.
        let gate = Gate::for_any_type().build().unwrap();
        let gated = serve(library, Some(gate), |_| Peer::new(Session::default())).await;
        let mut client = gated.client().await;
        for text in [frame("SAY"), too_large()] {
            assert_eq!(client.request(&text).await, format!("handled {text}"));
        }
    }
}

#[tokio::test]
async fn connection_buckets_are_reset_on_disconnect() {
    for library in BOTH {
        let fixture = Fixture::new();
        let ceiling = fixture.limiter_with("connection", tidegate::Policy::allowance(2).unwrap());
        let gate = Gate::for_types(["SAY"]).connection_ceiling(ceiling).build().unwrap();
        let mut server = serve(library, Some(gate), |_| Peer::new(Session::default())).await;
        for connection in 1..=3 {
            let mut client = server.client().await;
            client.request(&frame("SAY")).await;
            client.request(&frame("SAY")).await;
            let reply = client.request(&frame("SAY")).await;
            assert!(reply.contains(r#""message":"Connection limit reached""#), "{reply}");
            assert_eq!(fixture.buckets(), 1);
            client.close().await;
            server.closed_count(connection).await;
            assert_eq!(fixture.buckets(), 0);
        }
    }
}

/// A client may send more frames before it reads the close frame: none of them is handled.
#[tokio::test]
async fn frames_after_the_close_are_not_handled() {
    for library in BOTH {
        let fixture = Fixture::new();
        let close = OnExceeded::Close { code: None };
        let gate = gate(&fixture).on_exceeded(close).build().unwrap();
        let mut server = serve(library, Some(gate), |_| Peer::new(Session::of("alice"))).await;
        let mut client = server.client().await;
        client.send_all(&["SAY", "SAY", "PING", "PING", "nonsense", "PING"].map(frame)).await;
        assert_eq!(client.text().await, r#"handled {"type":"SAY"}"#);
        assert_eq!(client.closed().await.0, 1013);
        drop(client);
        server.closed_count(1).await;
        assert_eq!(server.handled_count(), 1);
    }
}

/// A server that keeps reading after its close frame would wait for the client's close frame
/// indefinitely.
#[tokio::test]
async fn client_that_ignores_its_close_frame_is_closed() {
    for library in BOTH {
        let fixture = Fixture::new();
        let close = OnExceeded::Close { code: None };
        let gate = gate(&fixture).on_exceeded(close).build().unwrap();
        let mut server = serve(library, Some(gate), |_| Peer::new(Session::of("alice"))).await;
        let mut client = server.client().await;
        client.request(&frame("SAY")).await;
        client.send(&frame("SAY")).await;
        let closed_count = tokio::time::timeout(TIMEOUT, server.closed_count(1)).await;
        assert!(closed_count.is_ok(), "{library:?} keeps the connection open");
        // The close frame was sent nevertheless.
        assert_eq!(client.closed().await.0, 1013);
    }
}
