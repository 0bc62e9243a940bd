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

use super::super::watch;
use super::*;
use crate::events::{Event, KEPT};
use crate::listener::connection::Peer;

fn warning(text: &str) -> Event {
    Event::Warning { message: text.to_owned() }
}

/// A watcher on a real socket.
struct Watching(BufReader<TcpStream>);

impl Watching {
    fn new(gate: &Gate, fields: &str) -> Self {
        Self::over(TcpStream::connect(gate.address).unwrap(), fields)
    }

    /// Connects from another address of the loopback range.
    fn from(address: [u8; 4], gate: &Gate) -> Self {
        let stream = gate.runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((address, 0).into()).unwrap();
            socket.connect(gate.address).await.unwrap().into_std().unwrap()
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
    fn line(&mut self, start: &str) -> String {
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
fn events_are_told_as_they_happen_and_again_to_those_who_come_back() {
    let gate = Gate::open();
    gate.events.publish(&warning("before anybody watched"));
    let mut first = Watching::new(&gate, "");
    assert_eq!(first.line("HTTP/1.1 "), "200 OK");
    assert_eq!(first.line("content-type: "), "text/event-stream");
    first.line("retry: ");
    gate.events.publish(&Event::Config {
        revision: 2,
        changes: tidegate_config::diff(
            &config(TEXT).current().effective,
            &config(&TEXT.replace("50/s", "10/s")).current().effective,
        ),
        door: "admin",
        who: Some("01234567".to_owned()),
    });
    let seen = first.line("id: ");
    assert_eq!(first.line("event: "), "config");
    assert_eq!(
        first.line("data: "),
        r#"{"revision":2,"changes":[{"key":"limits.client.rate","old":"50/s","new":"10/s","source":"file"}],"door":"admin","who":"01234567"}"#
    );
    drop(first);
    gate.events.publish(&warning("a line\nand another"));
    let mut second = Watching::new(&gate, &format!("last-event-id: {seen}\r\n"));
    assert_eq!(second.line("event: "), "warning");
    assert_eq!(second.line("data: "), r#"{"message":"a line\nand another"}"#);
    let mut third = Watching::new(&gate, "last-event-id: 00000000-99\r\n");
    assert_eq!(third.line("event: "), "missed");
    assert_eq!(third.line("data: "), "{}");
    assert_eq!(third.line("data: "), r#"{"message":"before anybody watched"}"#);
    let fourth = gate.ask("GET", "/admin/events", &[("last-event-id", "7")], "");
    fourth.refused(400, "invalid-request");
}

#[test]
fn there_is_a_number_of_seats_and_those_who_leave_give_theirs_back() {
    let gate = Gate::open();
    let quarter = MOST_WATCHERS / 4;
    let watch = |number| Watching::from([127, 0, 0, number], &gate);
    let mut watching: Vec<_> = (2..=5).flat_map(|from| vec![from; quarter]).map(watch).collect();
    for watcher in &mut watching {
        watcher.line("retry: ");
    }
    gate.get("/admin/events").refused(503, "too-many-watchers");
    watching.truncate(3 * quarter);
    wait_until("the other networks to have a seat", || {
        let refused = watch(2).line("HTTP/1.1 ").starts_with("503");
        let seated = watch(6).line("HTTP/1.1 ") == "200 OK";
        (refused && seated).then_some(())
    });
    watching.clear();
    wait_until("a seat that is free again", || {
        let mut watcher = Watching::new(&gate, "");
        (watcher.line("HTTP/1.1 ") == "200 OK").then_some(())
    });
}

/// Streams do not end by themselves, and would delay the shutdown.
#[test]
fn those_who_watch_are_sent_away_when_the_door_closes() {
    let mut gate = Gate::open();
    let mut watcher = Watching::new(&gate, "");
    watcher.line("retry: ");
    let own = gate.own.take().unwrap();
    let drained = gate.runtime.block_on(own.drain(Duration::from_secs(10)));
    assert_eq!(drained, crate::listener::drain::Drained::Complete);
    let mut rest = String::new();
    watcher.0.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "{rest:?}");
}

/// Regression: the idle timeout ran from the head of the response, and closed streams.
#[test]
fn a_watcher_is_not_idle() {
    let idle = Duration::from_millis(50);
    let gate = Gate::bounded(Bounds { idle, ..Bounds::default() });
    let mut watcher = Watching::new(&gate, "");
    watcher.line("retry: ");
    // Each of these becomes idle and is closed for it.
    for _ in 0..3 {
        let mut other = TcpStream::connect(gate.address).unwrap();
        other.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        other.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
    gate.events.publish(&warning("still there"));
    assert_eq!(watcher.line("data: "), r#"{"message":"still there"}"#);
}

/// Creates the state of an API of which only the events are used.
fn open() -> (Arc<Open>, Drain) {
    let drain = Drain::new();
    let api = AdminApi {
        config: config(TEXT),
        host_check: HostCheck::new("127.0.0.1:6070".parse().unwrap(), Vec::new()),
        bounds: Bounds::default(),
        health: Health::new(drain.signal(), || 0),
    };
    (
        Arc::new(Open { api, stop: drain.signal(), seats: Seats::new(1, TrustedProxies::NONE) }),
        drain,
    )
}

async fn visit(open: &Arc<Open>, headers: http::HeaderMap) -> axum::body::Body {
    let peer = Peer(std::net::Ipv4Addr::LOCALHOST.into());
    watch::events(Extracted(open.clone()), Extension(peer), headers).await.unwrap().into_body()
}

async fn next(body: &mut axum::body::Body) -> Option<String> {
    let frame = body.frame().await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn silence_is_broken_every_fifteen_seconds() {
    let (open, _drain) = open();
    let mut body = visit(&open, http::HeaderMap::new()).await;
    assert_eq!(next(&mut body).await.unwrap(), "retry: 2000\n\n");
    for _ in 0..3 {
        let start = Instant::now();
        assert_eq!(next(&mut body).await.unwrap(), ":\n\n");
        assert_eq!(start.elapsed(), Duration::from_secs(15));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_is_too_slow_is_cut_off() {
    let (open, _drain) = open();
    let mut body = visit(&open, http::HeaderMap::new()).await;
    next(&mut body).await.unwrap();
    open.parts().events.publish(&warning("first"));
    assert!(next(&mut body).await.unwrap().contains("first"));
    for _ in 0..=KEPT {
        open.parts().events.publish(&warning("flood"));
    }
    assert_eq!(next(&mut body).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_whose_token_is_withdrawn_hears_no_more() {
    let (open, _drain) = open();
    let minted = mint().unwrap();
    open.parts().tokens.replace([(minted.digest, Role::Read)]);
    let field = http::HeaderValue::from_str(&bearer(&minted)).unwrap();
    let headers = http::HeaderMap::from_iter([(http::header::AUTHORIZATION, field)]);
    let mut body = visit(&open, headers).await;
    next(&mut body).await.unwrap();
    open.parts().tokens.replace([(mint().unwrap().digest, Role::Read)]);
    open.parts().events.publish(&warning("secret"));
    assert_eq!(next(&mut body).await, None);
}

/// The stream owns the slot, so dropping the stream frees it.
#[tokio::test(start_paused = true)]
async fn a_seat_is_free_as_soon_as_the_stream_is_dropped() {
    let (open, _drain) = open();
    let mut body = visit(&open, http::HeaderMap::new()).await;
    let waiting = |body: &mut axum::body::Body| {
        Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())).is_pending()
    };
    assert!(!waiting(&mut body), "the greeting");
    assert!(waiting(&mut body));
    assert_eq!(open.seats.free(), 0);
    drop(body);
    assert_eq!(open.seats.free(), 1);
}
