//! The bounds of the listener, with real sockets and short timeouts. Tests wait for what the server
//! does, never for time alone.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate_http::host::HostCheck;
use tokio::runtime::Runtime;

use super::HttpApi;
use crate::configuration;
use crate::database::StoredSettings;
use crate::listener::accept;
use crate::listener::bounds::{Bounds, MAX_HEAD};
use crate::listener::drain::{Drain, Drained};
use crate::listener::files::OpenFiles;
use crate::listener::workers::Workers;

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(3_600);
const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
const PEEK: &str = r#"{"key":"alice","limit":"client","cost":0}"#;

/// Bounds that no test reaches; each test sets the one it is about.
const BOUNDS: Bounds =
    Bounds { connections: 100, per_network: 100, head: LONG, body: LONG, idle: LONG, write: LONG };

struct TestServer {
    address: std::net::SocketAddr,
    drain: Drain,
    runtime: Runtime,
}

impl TestServer {
    fn open(bounds: Bounds) -> Self {
        Self::open_with("", bounds)
    }

    fn open_with(text: &str, bounds: Bounds) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let (listener, address) = runtime.block_on(accept::bind(any)).unwrap();
        let config = configuration::from_text(text, StoredSettings::default(), None);
        let server = HttpApi::new(config, HostCheck::new(address, Vec::new()), bounds);
        let mut drain = Drain::new();
        let stop = drain.signal();
        runtime.block_on(async {
            drain.spawn(server.serve(
                listener,
                Workers::current_runtime(),
                OpenFiles::default(),
                stop,
            ));
        });
        Self { address, drain, runtime }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    /// Opens a connection and sends these bytes.
    fn send(&self, bytes: impl AsRef<[u8]>) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(bytes.as_ref()).unwrap();
        stream
    }
}

fn peek(extra: &str, length: usize, body: &str) -> String {
    format!(
        "POST /v1/peek HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{extra}\
         content-length: {length}\r\n\r\n{body}"
    )
}

/// Returns what the server sends before it closes the connection.
fn rest(mut stream: TcpStream) -> String {
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    rest
}

/// Reads one response from a connection that stays open.
fn read_response(stream: &mut TcpStream) -> String {
    let (mut response, mut byte) = (Vec::new(), [0]);
    while !response.ends_with(b"}") {
        stream.read_exact(&mut byte).unwrap();
        response.push(byte[0]);
    }
    String::from_utf8(response).unwrap()
}

/// Returns whether the server neither responds nor closes the connection within `span`.
fn is_silent(stream: &mut TcpStream, span: Duration) -> bool {
    stream.set_read_timeout(Some(span)).unwrap();
    let read = stream.read(&mut [0]);
    stream.set_read_timeout(None).unwrap();
    read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// Regression: a caller that sent half a header kept its connection forever.
#[test]
fn incomplete_heads_time_out() {
    let server = TestServer::open(Bounds { head: SHORT, ..BOUNDS });
    for begun in ["", "POST", "POST /v1/peek HTTP/1.1\r\nhost: localhost\r\n"] {
        assert_eq!(rest(server.send(begun)), "", "{begun:?}");
    }
}

#[test]
fn sending_single_bytes_does_not_extend_the_head_timeout() {
    let server = TestServer::open(Bounds { head: SHORT, ..BOUNDS });
    let mut stream = server.send("GET / HTTP/1.1\r\nx: ");
    while is_silent(&mut stream, Duration::from_millis(5)) {
        if stream.write_all(b"x").is_err() {
            break;
        }
    }
}

#[test]
fn idle_connections_time_out() {
    let server = TestServer::open(Bounds { idle: SHORT, ..BOUNDS });
    let mut stream = server.send(HEALTH);
    assert!(read_response(&mut stream).starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(rest(stream), "");
}

/// The head timeout starts with the first byte of a head, not with the previous response.
#[test]
fn idle_and_head_timeouts_are_separate() {
    // Long enough for a busy machine to send a whole head.
    let head = 5 * SHORT;
    let server = TestServer::open(Bounds { head, ..BOUNDS });
    let mut stream = server.send(HEALTH);
    read_response(&mut stream);
    assert!(is_silent(&mut stream, 2 * head));
    stream.write_all(HEALTH).unwrap();
    assert!(read_response(&mut stream).starts_with("HTTP/1.1 200 OK\r\n"));
    stream.write_all(b"GET /hea").unwrap();
    assert_eq!(rest(stream), "");
}

#[test]
fn slow_bodies_time_out() {
    let server = TestServer::open(Bounds { body: SHORT, ..BOUNDS });
    for begun in [peek("", 99, ""), peek("", PEEK.len(), &PEEK[1..]), peek("", 65_536, PEEK)] {
        let response = rest(server.send(begun));
        assert!(response.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{response}");
        assert!(response.contains("\r\nconnection: close\r\n"), "{response}");
        assert!(
            response.ends_with(
                r#"{"type":"urn:tidegate:problem:slow-body","title":"Slow body","status":408,"detail":"the body did not arrive in time"}"#
            ),
            "{response}"
        );
    }
}

#[test]
fn callers_that_read_no_responses_are_disconnected() {
    let server = TestServer::open(Bounds { write: SHORT, ..BOUNDS });
    let mut stream = server.connect();
    let requests = HEALTH.repeat(1_000);
    // Send requests until the server gives up on the unread responses.
    while stream.write_all(&requests).is_ok() {}
}

/// Starts a request whose body is still missing.
fn busy_connection(server: &TestServer) -> TcpStream {
    let mut stream = server.send(peek("expect: 100-continue\r\n", PEEK.len(), ""));
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    stream
}

#[test]
fn a_new_connection_waits_while_all_are_busy() {
    let server = TestServer::open(Bounds { connections: 2, ..BOUNDS });
    let [first, mut second] = [busy_connection(&server), busy_connection(&server)];
    let mut third = server.send(HEALTH);
    assert!(is_silent(&mut third, SHORT));
    second.write_all(PEEK.as_bytes()).unwrap();
    assert!(read_response(&mut second).starts_with("HTTP/1.1 200 OK\r\n"));
    // It is idle now, so it is evicted.
    assert!(read_response(&mut third).starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(rest(second), "");
    let mut fourth = busy_connection(&server);
    assert_eq!(rest(third), "");
    drop(first);
    fourth.write_all(PEEK.as_bytes()).unwrap();
    assert!(read_response(&mut fourth).starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn the_longest_idle_connection_is_evicted() {
    let server = TestServer::open(Bounds { connections: 3, ..BOUNDS });
    let busy_connection = busy_connection(&server);
    let [mut first, mut second] = [server.send(HEALTH), server.send(HEALTH)];
    read_response(&mut first);
    read_response(&mut second);
    first.write_all(HEALTH).unwrap();
    read_response(&mut first);
    let mut third = server.send(HEALTH);
    assert!(read_response(&mut third).starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(rest(second), "", "the first was used after it");
    first.write_all(HEALTH).unwrap();
    assert!(read_response(&mut first).starts_with("HTTP/1.1 200 OK\r\n"));
    drop(busy_connection);
}

/// An incomplete head is evicted when all other connections are busy, but not immediately.
#[test]
fn a_slow_head_is_evicted_if_nothing_is_idle() {
    let server = TestServer::open(Bounds { connections: 2, ..BOUNDS });
    let (_busy, slow) = (busy_connection(&server), server.send("GET /healthz HTTP/1.1\r\n"));
    let mut third = server.send(HEALTH);
    assert!(read_response(&mut third).starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(rest(slow), "");
}

#[test]
fn a_network_at_its_connection_limit_is_refused() {
    let server = TestServer::open(Bounds { per_network: 2, ..BOUNDS });
    let [first, mut second] = [busy_connection(&server), busy_connection(&server)];
    let refused = rest(server.connect());
    assert!(refused.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{refused}");
    let (head, body) = refused.split_once("\r\n\r\n").unwrap();
    assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
    assert!(body.starts_with('{') && body.ends_with('}'), "{body}");
    second.write_all(PEEK.as_bytes()).unwrap();
    read_response(&mut second);
    // An idle connection is evicted for another of the same network, once it is seen to be idle.
    let mut third = loop {
        let mut stream = server.send(HEALTH);
        if read_response(&mut stream).starts_with("HTTP/1.1 200 OK\r\n") {
            break stream;
        }
    };
    assert_eq!(rest(second), "");
    third.write_all(HEALTH).unwrap();
    read_response(&mut third);
    drop(first);
}

/// Setting: listen.trusted_proxies
#[test]
fn trusted_proxies_have_no_network_limit() {
    let text = "[listen]\ntrusted_proxies = [\"127.0.0.1\"]\n";
    let server = TestServer::open_with(text, Bounds { per_network: 2, ..BOUNDS });
    let mut all = [
        busy_connection(&server),
        busy_connection(&server),
        busy_connection(&server),
        busy_connection(&server),
    ];
    for stream in &mut all {
        stream.write_all(PEEK.as_bytes()).unwrap();
        assert!(read_response(stream).starts_with("HTTP/1.1 200 OK\r\n"));
    }
}

#[test]
fn heads_are_bounded() {
    let server = TestServer::open(BOUNDS);
    let padded = |length: usize| {
        let padding = "x".repeat(length);
        format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {padding}\r\n\r\n")
    };
    let mut stream = server.send(padded(MAX_HEAD / 2));
    assert!(read_response(&mut stream).starts_with("HTTP/1.1 200 OK\r\n"));
    let mut stream = server.send(padded(MAX_HEAD));
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 431");
}

/// The listener is full, so it has stopped accepting.
#[test]
fn idle_connections_do_not_delay_shutdown() {
    let server = TestServer::open(Bounds { connections: 2, ..BOUNDS });
    let [untouched, mut used] = [server.connect(), server.send(HEALTH)];
    read_response(&mut used);
    assert_eq!(server.runtime.block_on(server.drain.drain(LONG)), Drained::Complete);
    assert_eq!((rest(untouched), rest(used)), (String::new(), String::new()));
}

/// Regression: connections outlived the listener that had given up on them.
#[test]
fn busy_connections_are_closed_after_the_grace_period() {
    let server = TestServer::open(BOUNDS);
    let mut stream = server.send(peek("expect: 100-continue\r\n", PEEK.len(), ""));
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(server.runtime.block_on(server.drain.drain(SHORT)), Drained::CutOff);
    assert_eq!(rest(stream), "");
}
