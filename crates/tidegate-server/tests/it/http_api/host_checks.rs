//! Requests that never reach the engine: foreign hosts and origins, other media types, large
//! bodies, unknown paths, and bytes that are not HTTP.

use crate::TestServer;
use crate::wire::Response;

const BODY: &[u8] = br#"{"key":"alice","limit":"client"}"#;
const JSON: &str = "content-type: application/json";

fn take(server: &TestServer, headers: &[&str]) -> Response {
    Response::to(server.address(), "POST /v1/take", headers, BODY)
}

#[track_caller]
fn assert_problem(response: &Response, status: u16, kind: &str) {
    assert_eq!(response.status, status, "{response:?}");
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert_eq!(response.text("type"), format!("urn:tidegate:problem:{kind}"));
    assert_eq!(response.member("status"), status);
}

/// Setting: listen.allowed_hosts
#[test]
fn foreign_hosts_are_refused() {
    let server = TestServer::open();
    let own = format!("host: {}", server.address());
    for host in [own.as_str(), "host: localhost", "host: [::1]:99", "host: Gate.example.org:7"] {
        assert_eq!(take(&server, &[host, JSON]).status, 200, "{host}");
    }
    for host in ["host: evil.example", "host: 192.0.2.1:8080", "host: localhost.evil.example"] {
        assert_problem(&take(&server, &[host, JSON]), 421, "foreign-host");
    }
    assert_problem(&take(&server, &[JSON]), 400, "no-host");
    assert_problem(&take(&server, &["host: localhost", "host: localhost", JSON]), 400, "no-host");
    let absolute = "POST http://evil.example/v1/take";
    let response = Response::to(server.address(), absolute, &["host: localhost", JSON], BODY);
    assert_problem(&response, 421, "foreign-host");
    let health = Response::to(server.address(), "GET /healthz", &["host: evil.example"], b"");
    assert_problem(&health, 421, "foreign-host");
}

#[test]
fn foreign_origins_are_refused() {
    let server = TestServer::open();
    let host = format!("host: {}", server.address());
    let own = format!("origin: http://{}", server.address());
    assert_eq!(take(&server, &[&host, &own, JSON]).status, 200);
    for origin in ["https://evil.example", "null", "http://localhost:1"] {
        let origin = format!("origin: {origin}");
        assert_problem(&take(&server, &[&host, &origin, JSON]), 403, "foreign-origin");
        assert_problem(&take(&server, &[&host, &own, &origin, JSON]), 403, "foreign-origin");
    }
    let response =
        Response::to(server.address(), "OPTIONS /v1/take", &[&host, "origin: null"], b"");
    assert_problem(&response, 403, "foreign-origin");
}

#[test]
fn bodies_must_be_declared_as_json() {
    let server = TestServer::open();
    for kind in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=\"UTF-8\"",
    ] {
        let kind = format!("content-type: {kind}");
        assert_eq!(take(&server, &["host: localhost", &kind]).status, 200, "{kind}");
    }
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonp",
        "application/json; charset=utf-16",
        "",
    ] {
        let kind = format!("content-type: {kind}");
        assert_problem(&take(&server, &["host: localhost", &kind]), 415, "not-json");
    }
    assert_problem(&take(&server, &["host: localhost"]), 415, "not-json");
    let html = "content-type: text/html";
    for several in [[JSON, JSON], [JSON, html], [html, JSON]] {
        let headers = [&["host: localhost"][..], &several].concat();
        assert_problem(&take(&server, &headers), 415, "not-json");
    }
    let packed = ["host: localhost", JSON, "content-encoding: gzip"];
    assert_problem(&take(&server, &packed), 415, "not-json");
}

#[test]
fn bodies_are_bounded() {
    let server = TestServer::open();
    let padded = |length: usize| {
        let mut body = BODY.to_vec();
        body.resize(length, b' ');
        body
    };
    let headers = ["host: localhost", JSON];
    let post = |body: &[u8]| Response::to(server.address(), "POST /v1/take", &headers, body);
    assert_eq!(post(&padded(65_536)).status, 200);
    assert_problem(&post(&padded(65_537)), 413, "body-too-large");
    let mut chunked =
        b"POST /v1/take HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
          connection: close\r\ntransfer-encoding: chunked\r\n\r\n10001\r\n"
            .to_vec();
    chunked.extend(padded(65_537));
    chunked.extend(b"\r\n0\r\n\r\n");
    assert_problem(&Response::to_bytes(server.address(), &chunked), 413, "body-too-large");
}

#[test]
fn unknown_paths_and_methods_are_problems() {
    let server = TestServer::open();
    let send = |line: &str| Response::to(server.address(), line, &["host: localhost", JSON], b"");
    for line in ["GET /", "POST /v1/tale", "POST /v1/take/", "GET /v1", "POST /V1/take"] {
        assert_problem(&send(line), 404, "not-found");
    }
    for (line, allow) in [
        ("GET /v1/take", "POST"),
        ("PUT /v1/reset", "POST"),
        ("DELETE /v1/hold", "POST"),
        ("POST /healthz", "GET,HEAD"),
    ] {
        let response = send(line);
        assert_problem(&response, 405, "method-not-allowed");
        assert_eq!(response.header("allow"), Some(allow));
    }
}

#[test]
fn invalid_http_is_rejected_harmlessly() {
    let server = TestServer::open();
    for bytes in
        [&b"\r\n\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"\0\0\0\0\r\n\r\n"]
    {
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        std::io::Write::write_all(&mut stream, bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // A connection reset is acceptable too.
        let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{answer:?}");
    }
    let response =
        Response::to(server.address(), "POST /v1/take", &["host: localhost", JSON], b"\xff\xfe");
    assert_problem(&response, 400, "malformed-body");
    let cut = b"POST /v1/take HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 99\r\n\r\n{";
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    std::io::Write::write_all(&mut stream, cut).unwrap();
    drop(stream);
    assert_eq!(take(&server, &["host: localhost", JSON]).member("remaining"), 9);
}
