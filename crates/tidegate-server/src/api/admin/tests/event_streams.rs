//! Event streams.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::pin::Pin;
use std::task::{Context, Waker};

use axum::extract::{Extension, State as Extracted};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tidegate_http::identity::TrustedProxies;
use tidegate_testkit::launch::wait_until;
use tokio::net::TcpSocket;
use tokio::time::Instant;

use super::super::event_stream;
use super::*;
use crate::events::{Event, MAX_EVENTS};
use crate::listener::connection::Peer;

fn warning(text: &str) -> Event {
    Event::Warning { message: text.to_owned() }
}

/// A watcher on a real socket.
struct WatcherSocket(BufReader<TcpStream>);

impl WatcherSocket {
    fn new(server: &TestServer, fields: &str) -> Self {
        Self::over(TcpStream::connect(server.address).unwrap(), fields)
    }

    /// Connects from another address of the loopback range.
    fn from(address: [u8; 4], server: &TestServer) -> Self {
        let stream = server.runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((address, 0).into()).unwrap();
            socket.connect(server.address).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        Self::over(stream, "")
    }

    fn over(mut stream: TcpStream, fields: &str) -> Self {
        let head = format!("GET /admin/events HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        Self(BufReader::new(stream))
    }

    /// Reads up to a line with this prefix, and returns the rest of that line.
    fn line_after(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the end came before {start:?}");
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim().to_owned();
            }
        }
    }
}

#[test]
fn events_are_streamed_and_replayed_after_a_reconnect() {
    let server = TestServer::open();
    server.events.publish(&warning("before any watcher"));
    let mut first = WatcherSocket::new(&server, "");
    assert_eq!(first.line_after("HTTP/1.1 "), "200 OK");
    assert_eq!(first.line_after("content-type: "), "text/event-stream");
    first.line_after("retry: ");
    server.events.publish(&Event::Config {
        revision: 2,
        changes: tidegate_config::diff(
            &config(TEXT).current().effective,
            &config(&TEXT.replace("50/s", "10/s")).current().effective,
        ),
        door: "admin",
        who: Some("01234567".to_owned()),
    });
    let seen = first.line_after("id: ");
    assert_eq!(first.line_after("event: "), "config");
    assert_eq!(
        first.line_after("data: "),
        r#"{"revision":2,"changes":[{"key":"limits.client.rate","old":"50/s","new":"10/s","source":"file"}],"door":"admin","who":"01234567"}"#
    );
    drop(first);
    server.events.publish(&warning("a line\nand another"));
    let mut second = WatcherSocket::new(&server, &format!("last-event-id: {seen}\r\n"));
    assert_eq!(second.line_after("event: "), "warning");
    assert_eq!(second.line_after("data: "), r#"{"message":"a line\nand another"}"#);
    let mut third = WatcherSocket::new(&server, "last-event-id: 00000000-99\r\n");
    assert_eq!(third.line_after("event: "), "missed");
    assert_eq!(third.line_after("data: "), "{}");
    assert_eq!(third.line_after("data: "), r#"{"message":"before any watcher"}"#);
    let fourth = server.request("GET", "/admin/events", &[("last-event-id", "7")], "");
    fourth.assert_problem(400, "invalid-request");
}

#[test]
fn the_number_of_watchers_is_bounded_and_slots_are_freed() {
    let server = TestServer::open();
    let quarter = MAX_WATCHERS / 4;
    let connect = |number| WatcherSocket::from([127, 0, 0, number], &server);
    let mut watching: Vec<_> = (2..=5).flat_map(|from| vec![from; quarter]).map(connect).collect();
    for watcher in &mut watching {
        watcher.line_after("retry: ");
    }
    server.get("/admin/events").assert_problem(503, "too-many-watchers");
    watching.truncate(3 * quarter);
    wait_until("a slot for another network", || {
        let is_refused = connect(2).line_after("HTTP/1.1 ").starts_with("503");
        let is_admitted = connect(6).line_after("HTTP/1.1 ") == "200 OK";
        (is_refused && is_admitted).then_some(())
    });
    watching.clear();
    wait_until("a free slot", || {
        let mut watcher = WatcherSocket::new(&server, "");
        (watcher.line_after("HTTP/1.1 ") == "200 OK").then_some(())
    });
}

/// Streams do not end by themselves, and would delay the shutdown.
#[test]
fn streams_end_when_the_server_stops() {
    let mut server = TestServer::open();
    let mut watcher = WatcherSocket::new(&server, "");
    watcher.line_after("retry: ");
    let own = server.own.take().unwrap();
    let drained = server.runtime.block_on(own.drain(Duration::from_secs(10)));
    assert_eq!(drained, crate::listener::drain::Drained::Complete);
    let mut rest = String::new();
    watcher.0.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "{rest:?}");
}

/// Regression: the idle timeout ran from the head of the response, and closed streams.
#[test]
fn an_open_stream_is_not_idle() {
    let idle = Duration::from_millis(50);
    let server = TestServer::with_bounds(Bounds { idle, ..Bounds::default() });
    let mut watcher = WatcherSocket::new(&server, "");
    watcher.line_after("retry: ");
    // Each of these becomes idle and is closed for it.
    for _ in 0..3 {
        let mut other = TcpStream::connect(server.address).unwrap();
        other.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        other.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
    server.events.publish(&warning("still there"));
    assert_eq!(watcher.line_after("data: "), r#"{"message":"still there"}"#);
}

/// Creates the state of an API of which only the events are used.
fn admin_state() -> (Arc<AdminState>, Drain) {
    let drain = Drain::new();
    let api = AdminApi {
        config: config(TEXT),
        host_check: HostCheck::new("127.0.0.1:6070".parse().unwrap(), Vec::new()),
        bounds: Bounds::default(),
        health: Health::new(drain.signal(), || 0),
        info: ServerInfo::new([]),
    };
    (
        Arc::new(AdminState {
            api,
            stop: drain.signal(),
            slots: WatcherSlots::new(1, TrustedProxies::NONE),
        }),
        drain,
    )
}

async fn watch_events(state: &Arc<AdminState>, headers: http::HeaderMap) -> axum::body::Body {
    let peer = Peer(std::net::Ipv4Addr::LOCALHOST.into());
    event_stream::events(Extracted(state.clone()), Extension(peer), headers)
        .await
        .unwrap()
        .into_body()
}

async fn next(body: &mut axum::body::Body) -> Option<String> {
    let frame = body.frame().await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_is_sent_every_fifteen_seconds() {
    let (state, _drain) = admin_state();
    let mut body = watch_events(&state, http::HeaderMap::new()).await;
    assert_eq!(next(&mut body).await.unwrap(), "retry: 2000\n\n");
    for _ in 0..3 {
        let start = Instant::now();
        assert_eq!(next(&mut body).await.unwrap(), ":\n\n");
        assert_eq!(start.elapsed(), Duration::from_secs(15));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_falls_behind_is_disconnected() {
    let (state, _drain) = admin_state();
    let mut body = watch_events(&state, http::HeaderMap::new()).await;
    next(&mut body).await.unwrap();
    state.parts().events.publish(&warning("first"));
    assert!(next(&mut body).await.unwrap().contains("first"));
    for _ in 0..=MAX_EVENTS {
        state.parts().events.publish(&warning("flood"));
    }
    assert_eq!(next(&mut body).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_whose_token_is_revoked_is_disconnected() {
    let (state, _drain) = admin_state();
    let minted = create_token().unwrap();
    state.parts().tokens.replace([(minted.digest, Role::Read)]);
    let field = http::HeaderValue::from_str(&bearer(&minted)).unwrap();
    let headers = http::HeaderMap::from_iter([(http::header::AUTHORIZATION, field)]);
    let mut body = watch_events(&state, headers).await;
    next(&mut body).await.unwrap();
    state.parts().tokens.replace([(create_token().unwrap().digest, Role::Read)]);
    state.parts().events.publish(&warning("secret"));
    assert_eq!(next(&mut body).await, None);
}

/// The stream owns the slot, so dropping the stream frees it.
#[tokio::test(start_paused = true)]
async fn dropping_the_stream_frees_the_slot() {
    let (state, _drain) = admin_state();
    let mut body = watch_events(&state, http::HeaderMap::new()).await;
    let waiting = |body: &mut axum::body::Body| {
        Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())).is_pending()
    };
    assert!(!waiting(&mut body), "the first message is ready");
    assert!(waiting(&mut body));
    assert_eq!(state.slots.free(), 0);
    drop(body);
    assert_eq!(state.slots.free(), 1);
}
