//! Connection floods from one address, slow readers, cross-site requests, amplified responses, and
//! stale readiness.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_testkit::launch::{Flavor, RedisServer, wait_until};
use tokio::net::TcpSocket;
use tokio::time::Instant;

use super::fixtures::{Caller, Program, Upstream, UpstreamResponse, small_response};
use crate::program::{Serving, serve, serve_with_files};

const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));
const VICTIM: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7));

/// Shorter than every timeout after which the program closes a connection.
const SOON: Duration = Duration::from_secs(8);

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Opens connections from one address.
struct Attacker(tokio::runtime::Runtime);

impl Attacker {
    fn new() -> Self {
        Self(tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap())
    }

    fn connect(&self, listener: SocketAddr) -> TcpStream {
        let stream = self.0.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::new(ATTACKER, 0))?;
            socket.connect(listener).await?.into_std()
        });
        let stream = stream.unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    /// Opens a connection, uses it once and leaves it idle.
    fn idle(&self, listener: SocketAddr) -> io::Result<TcpStream> {
        let mut stream = self.connect(listener);
        stream.write_all(HEALTH)?;
        if stream.read(&mut [0; 1_024])? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(stream)
    }
}

/// Makes a request from another address and returns its status; `None` if there is no response in
/// time.
fn victim(listener: SocketAddr) -> Option<u16> {
    let mut caller = Caller::at(listener, VICTIM);
    caller.stream.set_read_timeout(Some(SOON)).unwrap();
    caller.write(HEALTH).unwrap();
    caller.read().ok().flatten().map(|answer| answer.status())
}

fn address(url: &str) -> SocketAddr {
    url.strip_prefix("http://").unwrap().parse().unwrap()
}

/// Raises the limit of open files, for this process and the program it starts, to the hard limit.
fn raise_open_files(least: u64) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let allowed = maximum.unwrap_or(u64::MAX);
    assert!(allowed >= least, "this test needs {least} open files: raise `ulimit -Hn` ({allowed})");
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Regression: one address could use all 10,000 connections of a listener.
#[test]
fn one_address_cannot_fill_a_listener() {
    const CONNECTIONS: usize = 10_000;
    raise_open_files(11_000);
    let program = Program::start("");
    let attacker = Attacker::new();
    let crowd: Vec<_> = (0..CONNECTIONS).map(|_| attacker.idle(program.http).unwrap()).collect();
    assert_eq!(victim(program.http), Some(200));
    // The attacker is not locked out: its own idle connections are closed for it.
    attacker.idle(program.http).unwrap();
    drop(crowd);
}

/// At the limit of open files, idle connections are closed for new ones.
#[test]
fn idle_connections_are_closed_when_files_run_out() {
    let here = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(&mut serve_with_files(256, here.path(), &[]));
    let http = address(&serving.url);
    let attacker = Attacker::new();
    let mut crowd = Vec::new();
    for _ in 0..300 {
        let mut stream = attacker.connect(http);
        stream.write_all(HEALTH).unwrap();
        crowd.push(stream);
    }
    serving.wait_for("cannot accept connections; will retry");
    assert_eq!(victim(http), Some(200));
}

/// Connections of one listener use files of the whole process.
#[test]
fn connections_of_one_listener_do_not_block_another() {
    let here = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(&mut serve_with_files(256, here.path(), &[]));
    let (http, admin) = (address(&serving.url), address(&serving.admin));
    let attacker = Attacker::new();
    let mut crowd = Vec::new();
    for _ in 0..300 {
        let mut stream = attacker.connect(http);
        stream.write_all(HEALTH).unwrap();
        crowd.push(stream);
    }
    serving.wait_for("cannot accept connections; will retry");
    assert_eq!(victim(admin), Some(200));
}

/// Connections that send an incomplete head, or nothing, within their ten seconds.
#[test]
fn silent_connections_are_closed_when_files_run_out() {
    let here = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(&mut serve_with_files(256, here.path(), &[]));
    let http = address(&serving.url);
    let attacker = Attacker::new();
    let crowd: Vec<_> = (0..300)
        .map(|number| {
            let mut stream = attacker.connect(http);
            stream.write_all(&HEALTH[..number % HEALTH.len() / 2]).unwrap();
            stream
        })
        .collect();
    serving.wait_for("cannot accept connections; will retry");
    let asked = Instant::now();
    assert_eq!(victim(http), Some(200));
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    drop(crowd);
}

/// Regression: a reader of 100 kB/s was disconnected, because the kernel reported the socket as
/// writable only after a third of its send buffer of megabytes was read. Takes real time.
#[test]
fn steady_slow_reader_gets_the_whole_response() {
    const SIZE: usize = 6 << 20;
    const PIECE: usize = 10_000;
    let upstream = Upstream::start(|_| UpstreamResponse {
        status: 200,
        headers: vec![("content-type".to_owned(), "text/event-stream".to_owned())],
        body: vec![b'\n'; SIZE],
    });
    let config = format!("[providers.openai]\nbase_url = \"{}\"\n", upstream.url);
    let program = Program::start(&config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(16 * 1_024)?;
        socket.connect(program.http).await?.into_std()
    });
    let mut stream = stream.unwrap();
    stream.set_nonblocking(false).unwrap();
    let body = br#"{"model":"m","stream":true,"messages":[]}"#;
    let head = format!(
        "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer k\r\n\
         content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let (started, (_silent, pace)) = (Instant::now(), mpsc::channel::<()>());
    let mut read = 0;
    while started.elapsed() < Duration::from_secs(13) {
        let mut piece = [0; PIECE];
        stream.read_exact(&mut piece).unwrap();
        read += PIECE;
        let due = Duration::from_millis(u64::try_from(read).unwrap() / 100);
        let _ = pace.recv_timeout(due.saturating_sub(started.elapsed()));
    }
    let rest = io::copy(&mut stream, &mut io::sink()).unwrap();
    let total = read + usize::try_from(rest).unwrap();
    assert!(total >= SIZE, "{total} of {SIZE} bytes");
}

/// A page of another site can make a browser send these with an image, a link or a form.
#[test]
fn cross_site_browser_requests_are_rejected() {
    let upstream = Upstream::start(|_| small_response());
    let config = format!("[providers.openai]\nbase_url = \"{}\"\n", upstream.url);
    let program = Program::start(&config);
    let sites: [&[(&str, &str)]; 6] = [
        &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
        &[("Sec-Fetch-Site", "Cross-Site"), ("sec-fetch-mode", "navigate")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "none, cross-site")],
    ];
    for site in sites {
        for (method, path) in [
            ("GET", "/openai/v1/models"),
            ("OPTIONS", "/openai/v1/models"),
            ("POST", "/openai/v1/chat/completions"),
            ("GET", "/v1/pending"),
            ("GET", "/nothing"),
        ] {
            let answer = Caller::at(program.http, VICTIM).request(method, path, site, b"");
            assert_eq!(answer.status(), 403, "{method} {path} {site:?}");
        }
        for path in ["/admin/events", "/admin/config", "/admin/providers", "/config", "/metrics"] {
            let mut caller = Caller::at(program.admin, VICTIM);
            caller.stream.set_read_timeout(Some(SOON)).unwrap();
            let mut head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n");
            site.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
            caller.write(format!("{head}\r\n").as_bytes()).unwrap();
            let mut start = [0; 12];
            caller.stream.read_exact(&mut start).unwrap();
            assert_eq!(&start, b"HTTP/1.1 403", "{path} {site:?}");
        }
    }
    assert_eq!(upstream.count(), 0);
    for site in ["none", "same-origin"] {
        let fields = [("sec-fetch-site", site)];
        assert_eq!(program.request("GET", "/openai/v1/models", &fields, b"").status(), 200);
    }
}

/// Regression: 19 KB of empty lists caused a response of 1.15 MB, because each error was reported
/// twice.
#[test]
fn batch_errors_are_bounded_in_size() {
    let program = Program::start("");
    let charges = vec!["{}"; 16].join(",");
    let batch = |operation: &str| {
        let body = format!(r#"{{"operations":[{}]}}"#, vec![operation; 256].join(","));
        assert!(body.len() < 64 * 1_024);
        program.post("/v1/batch", &[], body.as_bytes()).body.len()
    };
    for operation in [
        format!(r#"{{"op":"take","charges":[{charges}]}}"#),
        format!(r#"{{"op":"settle","charges":[{charges}]}}"#),
        r#"{"op":"hold","a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1}"#.to_owned(),
        r#"{"op":"take","policy":{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1}}"#.to_owned(),
    ] {
        let length = batch(&operation);
        assert!(length <= 128 * 1_024, "{operation}: {length} bytes");
    }
}

/// As for batches: a query with many errors, and a change of many settings.
#[test]
fn error_lists_are_bounded_in_size() {
    let program = Program::start("");
    let query = format!("/v1/take?{}", "a&".repeat(3_500));
    let answer = program.post(&query, &[], b"");
    assert_eq!(answer.status(), 400);
    assert!(answer.body.len() <= 16 * 1_024, "{} bytes", answer.body.len());
    let entries: Vec<_> = (0..3_000).map(|number| format!("\"k{number}\":{{\"x\":1}}")).collect();
    let change = format!("{{\"limits\":{{{}}}}}", entries.join(","));
    let headers = [("content-type", "application/json")];
    let mut caller = Caller::at(program.admin, VICTIM);
    let answer = caller.request("PATCH", "/admin/config", &headers, change.as_bytes());
    assert_eq!(answer.status(), 422);
    assert!(answer.body.len() <= 16 * 1_024, "{} bytes", answer.body.len());
}

/// Regression: without calls, an unreachable store was not noticed.
#[test]
fn readiness_follows_the_store_without_calls() {
    let here = tempfile::tempdir().unwrap();
    let config = "[limits.api]\nrate = \"1/s\"\non_failure = \"closed\"\n";
    fs::write(here.path().join("tidegate.toml"), config).unwrap();
    let server = RedisServer::start(Flavor::Redis);
    let serving = Serving::start(&mut serve(here.path(), &["--store", &server.url()]));
    wait_until("the program to be ready", || (serving.ask("/readyz").0 == 200).then_some(()));
    server.kill();
    let killed = Instant::now();
    wait_until("the program not to be ready", || (serving.ask("/readyz").0 == 503).then_some(()));
    assert!(killed.elapsed() < Duration::from_secs(2), "{:?}", killed.elapsed());
    server.restart();
    wait_until("the program to be ready again", || (serving.ask("/readyz").0 == 200).then_some(()));
    // A stopped process does not respond either.
    server.stop();
    wait_until("the program not to be ready", || (serving.ask("/readyz").0 == 503).then_some(()));
    server.cont();
}
