//! Requests that never reach the engine: foreign hosts and origins, other media types, large
//! bodies, unknown paths, and bytes that are not HTTP.

use crate::Gate;
use crate::wire::Reply;

const BODY: &[u8] = br#"{"key":"alice","limit":"client"}"#;
const JSON: &str = "content-type: application/json";

fn take(gate: &Gate, headers: &[&str]) -> Reply {
    Reply::to(gate.address(), "POST /v1/take", headers, BODY)
}

#[track_caller]
fn refused(reply: &Reply, status: u16, kind: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.text("type"), format!("urn:tidegate:problem:{kind}"));
    assert_eq!(reply.member("status"), status);
}

/// Setting: listen.allowed_hosts
#[test]
fn the_host_must_be_ours() {
    let gate = Gate::open();
    let own = format!("host: {}", gate.address());
    for host in [own.as_str(), "host: localhost", "host: [::1]:99", "host: Gate.example.org:7"] {
        assert_eq!(take(&gate, &[host, JSON]).status, 200, "{host}");
    }
    for host in ["host: evil.example", "host: 192.0.2.1:8080", "host: localhost.evil.example"] {
        refused(&take(&gate, &[host, JSON]), 421, "foreign-host");
    }
    refused(&take(&gate, &[JSON]), 400, "no-host");
    refused(&take(&gate, &["host: localhost", "host: localhost", JSON]), 400, "no-host");
    let absolute = "POST http://evil.example/v1/take";
    let reply = Reply::to(gate.address(), absolute, &["host: localhost", JSON], BODY);
    refused(&reply, 421, "foreign-host");
    let health = Reply::to(gate.address(), "GET /healthz", &["host: evil.example"], b"");
    refused(&health, 421, "foreign-host");
}

#[test]
fn foreign_pages_may_not_ask() {
    let gate = Gate::open();
    let host = format!("host: {}", gate.address());
    let own = format!("origin: http://{}", gate.address());
    assert_eq!(take(&gate, &[&host, &own, JSON]).status, 200);
    for origin in ["https://evil.example", "null", "http://localhost:1"] {
        let origin = format!("origin: {origin}");
        refused(&take(&gate, &[&host, &origin, JSON]), 403, "foreign-origin");
        refused(&take(&gate, &[&host, &own, &origin, JSON]), 403, "foreign-origin");
    }
    let reply = Reply::to(gate.address(), "OPTIONS /v1/take", &[&host, "origin: null"], b"");
    refused(&reply, 403, "foreign-origin");
}

#[test]
fn bodies_must_be_declared_as_json() {
    let gate = Gate::open();
    for kind in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=\"UTF-8\"",
    ] {
        let kind = format!("content-type: {kind}");
        assert_eq!(take(&gate, &["host: localhost", &kind]).status, 200, "{kind}");
    }
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonp",
        "application/json; charset=utf-16",
        "",
    ] {
        let kind = format!("content-type: {kind}");
        refused(&take(&gate, &["host: localhost", &kind]), 415, "not-json");
    }
    refused(&take(&gate, &["host: localhost"]), 415, "not-json");
    let html = "content-type: text/html";
    for several in [[JSON, JSON], [JSON, html], [html, JSON]] {
        let headers = [&["host: localhost"][..], &several].concat();
        refused(&take(&gate, &headers), 415, "not-json");
    }
    let packed = ["host: localhost", JSON, "content-encoding: gzip"];
    refused(&take(&gate, &packed), 415, "not-json");
}

#[test]
fn bodies_are_bounded() {
    let gate = Gate::open();
    let padded = |length: usize| {
        let mut body = BODY.to_vec();
        body.resize(length, b' ');
        body
    };
    let headers = ["host: localhost", JSON];
    let post = |body: &[u8]| Reply::to(gate.address(), "POST /v1/take", &headers, body);
    assert_eq!(post(&padded(65_536)).status, 200);
    refused(&post(&padded(65_537)), 413, "body-too-large");
    let mut chunked =
        b"POST /v1/take HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
          connection: close\r\ntransfer-encoding: chunked\r\n\r\n10001\r\n"
            .to_vec();
    chunked.extend(padded(65_537));
    chunked.extend(b"\r\n0\r\n\r\n");
    refused(&Reply::to_bytes(gate.address(), &chunked), 413, "body-too-large");
}

#[test]
fn paths_and_methods_that_are_not_there_are_problems_too() {
    let gate = Gate::open();
    let ask = |line: &str| Reply::to(gate.address(), line, &["host: localhost", JSON], b"");
    for line in ["GET /", "POST /v1/tale", "POST /v1/take/", "GET /v1", "POST /V1/take"] {
        refused(&ask(line), 404, "not-found");
    }
    for (line, allow) in [
        ("GET /v1/take", "POST"),
        ("PUT /v1/reset", "POST"),
        ("DELETE /v1/hold", "POST"),
        ("POST /healthz", "GET,HEAD"),
    ] {
        let reply = ask(line);
        refused(&reply, 405, "method-not-allowed");
        assert_eq!(reply.header("allow"), Some(allow));
    }
}

#[test]
fn bytes_that_are_no_request_get_an_answer_and_do_no_harm() {
    let gate = Gate::open();
    for bytes in
        [&b"\r\n\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"\0\0\0\0\r\n\r\n"]
    {
        let mut stream = std::net::TcpStream::connect(gate.address()).unwrap();
        std::io::Write::write_all(&mut stream, bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // A connection reset is acceptable too.
        let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{answer:?}");
    }
    let reply = Reply::to(gate.address(), "POST /v1/take", &["host: localhost", JSON], b"\xff\xfe");
    refused(&reply, 400, "malformed-body");
    let cut = b"POST /v1/take HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 99\r\n\r\n{";
    let mut stream = std::net::TcpStream::connect(gate.address()).unwrap();
    std::io::Write::write_all(&mut stream, cut).unwrap();
    drop(stream);
    assert_eq!(take(&gate, &["host: localhost", JSON]).member("remaining"), 9);
}
