//! The ready-made loop for axum, with a real client over a real socket.
#![cfg(feature = "axum")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::extract::{ConnectInfo, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::any;
use tidegate::{Engine, FailureRule, MemoryStore, Policy, StoreHandle};
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};
use tidegate_ws::{
    ClientAddress, Gate, GateBuilder, Handler, MessageRule, OnExceeded, Peer, ReceivedMessage,
    Sockets,
};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_tungstenite::tungstenite;

use crate::fixture::{Fixture, Session, frame};
use crate::servers::Client;

/// Long enough to be exceeded only by a hang.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An echo that logs in with `LOGIN`, and can be told to send by a test.
struct Echo {
    outboxes: Arc<Mutex<Vec<mpsc::Sender<Message>>>>,
}

impl Handler<Session> for Echo {
    fn open(&mut self, _: &mut Session, outbox: mpsc::Sender<Message>) {
        self.outboxes.try_lock().unwrap().push(outbox);
    }

    async fn message(
        &mut self,
        session: &mut Session,
        message: ReceivedMessage,
    ) -> Option<Message> {
        match message.message_type() {
            "LOGIN" => {
                session.user = Some("alice".into());
                None
            }
            _ => Some(message.frame().clone()),
        }
    }
}

struct Server {
    address: SocketAddr,
    outboxes: Arc<Mutex<Vec<mpsc::Sender<Message>>>>,
}

#[derive(Clone)]
struct App {
    sockets: Sockets<Session>,
    outboxes: Arc<Mutex<Vec<mpsc::Sender<Message>>>>,
    clients: ClientAddress,
}

impl Server {
    async fn start(gate: GateBuilder<Session>) -> Self {
        Self::behind(ClientAddress::peer(), gate).await
    }

    async fn behind(clients: ClientAddress, gate: GateBuilder<Session>) -> Self {
        let (sockets, outboxes) = (Sockets::new(gate.build().unwrap()), Arc::default());
        let app = App { sockets, outboxes: Arc::clone(&outboxes), clients };
        let address = serve(Router::new().route("/", any(enter)).with_state(app)).await;
        Self { address, outboxes }
    }

    async fn client(&self) -> Client {
        Client::connect(self.address).await
    }
}

async fn enter(
    State(app): State<App>,
    ConnectInfo(socket): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let peer = Peer::new(Session::default()).client_address(&app.clients, socket.ip(), &headers);
    app.sockets.upgrade(upgrade, peer, Echo { outboxes: app.outboxes })
}

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

/// One `SAY` in a second and messages of 100 bytes; other types are not limited.
fn gate(fixture: &Fixture) -> GateBuilder<Session> {
    let rule = MessageRule::new(fixture.limiter("say", 1, 1))
        .when(|context| context.message_type() == "SAY");
    Gate::for_types(["SAY", "PING", "LOGIN"]).limit(rule).max_payload(100)
}

fn too_large(bytes: usize) -> String {
    format!(r#"{{"type":"SAY","text":"{}"}}"#, "x".repeat(bytes))
}

#[tokio::test]
async fn messages_are_handled_or_refused_with_a_frame() {
    let fixture = Fixture::new();
    let server = Server::start(gate(&fixture)).await;
    let mut client = server.client().await;
    client.ping().await;
    assert_eq!(client.request(&frame("SAY")).await, frame("SAY"));
    let refused = client.request(&frame("SAY")).await;
    assert!(refused.contains(r#""code":"RESOURCE_EXHAUSTED""#), "{refused}");
    assert!(refused.contains(r#""retryAfterMs":1000"#), "{refused}");
    let refused = client.request(&too_large(100)).await;
    assert!(refused.contains(r#""code":"FAILED_PRECONDITION""#), "{refused}");
    assert!(client.request("no json").await.contains("PARSE_ERROR"));
    client.send_binary(&frame("PING")).await;
    assert_eq!(client.next().await, tungstenite::Message::binary(frame("PING")));
    client.close().await;
}

#[tokio::test]
async fn exceeded_limits_close_with_their_codes() {
    for (code, rate, payload) in [(None, 1013, 1009), (Some(4_029), 4_029, 4_029)] {
        let fixture = Fixture::new();
        let server = Server::start(gate(&fixture).on_exceeded(OnExceeded::Close { code })).await;
        let mut client = server.client().await;
        client.send_all(&["SAY", "SAY", "PING", "PING"].map(frame)).await;
        assert_eq!(client.text().await, frame("SAY"));
        assert_eq!(client.closed().await, (rate, "rate_limited;retry_after_ms=1000".into()));
        assert!(client.is_ended().await);
        let mut client = server.client().await;
        client.send(&too_large(100)).await;
        assert_eq!(client.closed().await, (payload, "payload_exceeded".into()));
    }
}

#[tokio::test]
async fn custom_sends_nothing() {
    let fixture = Fixture::new();
    let server = Server::start(gate(&fixture).on_exceeded(OnExceeded::Custom)).await;
    let mut client = server.client().await;
    assert_eq!(client.request(&frame("SAY")).await, frame("SAY"));
    client.send(&frame("SAY")).await;
    assert_eq!(client.request(&frame("PING")).await, frame("PING"));
}

/// The library must not buffer what the gate would refuse anyway.
#[tokio::test]
async fn much_too_large_messages_end_the_connection() {
    let fixture = Fixture::new();
    let server = Server::start(gate(&fixture)).await;
    let mut client = server.client().await;
    assert!(client.request(&too_large(60_000)).await.contains("Payload size exceeds limit"));
    client.send(&too_large(70_000)).await;
    assert!(client.is_ended().await);
}

#[tokio::test]
async fn handlers_change_the_data_of_their_connection() {
    let fixture = Fixture::new();
    let server = Server::start(gate(&fixture)).await;
    let mut client = server.client().await;
    assert_eq!(client.request(&frame("SAY")).await, frame("SAY"));
    assert!(client.request(&frame("SAY")).await.contains("ERROR"));
    client.send(&frame("LOGIN")).await;
    assert_eq!(client.request(&frame("SAY")).await, frame("SAY"), "the bucket of the user");
}

#[tokio::test]
async fn messages_can_be_sent_at_any_time() {
    let fixture = Fixture::new();
    let server = Server::start(gate(&fixture)).await;
    let mut client = server.client().await;
    client.request(&frame("PING")).await;
    let outbox = server.outboxes.lock().await.pop().unwrap();
    outbox.send(Message::text("news")).await.unwrap();
    assert_eq!(client.text().await, "news");
    let close = axum::extract::ws::CloseFrame { code: 4_000, reason: "kicked".into() };
    outbox.send(Message::Close(Some(close))).await.unwrap();
    assert_eq!(client.closed().await, (4_000, "kicked".into()));
    outbox.closed().await;
}

/// R225: over a real upgrade request.
#[tokio::test]
async fn clients_behind_a_trusted_proxy_are_distinguished() {
    for (clients, shared) in [
        (ClientAddress::from_x_forwarded_for().trust_proxies(["127.0.0.1"]).unwrap(), false),
        (ClientAddress::from_x_forwarded_for(), true),
    ] {
        let fixture = Fixture::new();
        let server = Server::behind(clients, gate(&fixture)).await;
        let mut one = Client::forwarded(server.address, "203.0.113.1").await;
        let mut other = Client::forwarded(server.address, "203.0.113.2").await;
        assert_eq!(one.request(&frame("SAY")).await, frame("SAY"));
        assert_eq!(other.request(&frame("SAY")).await.contains("ERROR"), shared);
    }
}

/// What a client gets while the store is away, by failure rule, and without a guard.
#[tokio::test]
async fn unavailable_store_is_reported_and_the_socket_stays_open() {
    let away = FaultyStore::new(MemoryStore::new(), Behaviour::from(Timing::AtOnce).unavailable());
    let rule = |engine: &Engine| {
        let limiter = engine.limiter("say", Policy::per_minute(1).build().unwrap()).unwrap();
        let rule = MessageRule::new(limiter.clone()).key(tidegate_ws::per_user_key);
        (limiter, Gate::for_types(["SAY"]).limit(rule))
    };
    let (_, unguarded) = rule(&Engine::on(StoreHandle::shared(away.clone())));
    let server = Server::start(unguarded).await;
    let mut client = server.client().await;
    for _ in 0..2 {
        let reply = client.request(&frame("SAY")).await;
        assert!(reply.contains(r#""code":"UNAVAILABLE""#), "{reply}");
        assert!(reply.contains(r#""retryable":true,"retryAfterMs":1000"#), "{reply}");
    }
    let (limiter, guarded) = rule(&Engine::shared(away).unwrap());
    let server = Server::start(guarded).await;
    let mut client = server.client().await;
    for (failure_rule, expected) in [
        (FailureRule::Open, r#"{"type":"SAY"}"#),
        (FailureRule::Closed, r#""code":"UNAVAILABLE","message":"Limits are unavailable""#),
        (FailureRule::Local, r#"{"type":"SAY"}"#),
        (FailureRule::Local, r#""code":"RESOURCE_EXHAUSTED""#),
        (FailureRule::Open, r#"{"type":"SAY"}"#),
    ] {
        limiter.set_failure_rule(failure_rule);
        let reply = client.request(&frame("SAY")).await;
        assert!(reply.contains(expected), "{failure_rule:?}: {reply}");
    }
}

/// A server whose handler says that it has started, and then waits until it may reply.
async fn blocked() -> (SocketAddr, Sockets<()>, mpsc::Receiver<oneshot::Sender<()>>) {
    let (started, starts) = mpsc::channel(1);
    let sockets = Sockets::new(Gate::<()>::for_any_type().build().unwrap());
    let state = (sockets.clone(), started);
    let enter = async |State((sockets, started)): State<(Sockets<()>, mpsc::Sender<_>)>,
                       upgrade: WebSocketUpgrade| {
        sockets.upgrade(upgrade, Peer::new(()), move |message: ReceivedMessage| {
            let started = started.clone();
            async move {
                let (release, released) = oneshot::channel::<()>();
                started.send(release).await.ok()?;
                released.await.ok()?;
                Some(message.frame().clone())
            }
        })
    };
    (serve(Router::new().route("/", any(enter)).with_state(state)).await, sockets, starts)
}

#[tokio::test]
async fn close_finishes_the_message_in_progress() {
    let (address, sockets, mut starts) = blocked().await;
    let (mut busy, mut idle) = (Client::connect(address).await, Client::connect(address).await);
    busy.send_all(&["A", "B"].map(frame)).await;
    let release = starts.recv().await.unwrap();
    let closer = sockets.clone();
    let closing = tokio::spawn(async move { closer.close(TIMEOUT).await });
    assert_eq!(idle.closed().await, (1001, "going away".into()));
    assert!(idle.is_ended().await);
    assert!(!closing.is_finished());
    // A new client is refused.
    let refused = tokio_tungstenite::connect_async(format!("ws://{address}/")).await.unwrap_err();
    let tungstenite::Error::Http(response) = refused else { panic!("{refused}") };
    assert_eq!(response.status(), 503);
    release.send(()).unwrap();
    assert_eq!(busy.text().await, frame("A"));
    // Another message may have been read before the close.
    drop(starts);
    assert_eq!(busy.closed().await.0, 1001);
    assert!(busy.is_ended().await);
    closing.await.unwrap();
    // Again, and without any socket.
    sockets.close(TIMEOUT).await;
}

#[tokio::test]
async fn close_aborts_what_takes_too_long() {
    let (address, sockets, mut starts) = blocked().await;
    let mut busy = Client::connect(address).await;
    busy.send(&frame("A")).await;
    let mut release = starts.recv().await.unwrap();
    sockets.close(Duration::from_millis(10)).await;
    assert!(busy.is_ended().await);
    release.closed().await;
}

/// Sockets outlive the handle of the application.
#[tokio::test]
async fn sockets_stay_open_without_a_handle() {
    let (address, sockets, mut starts) = blocked().await;
    let mut client = Client::connect(address).await;
    drop(sockets);
    client.send(&frame("A")).await;
    starts.recv().await.unwrap().send(()).unwrap();
    assert_eq!(client.text().await, frame("A"));
}
