//! Startup and shutdown.

use std::io::{Read, Write};
use std::net::TcpStream;

use tidegate_config::{Key, Loader};
use tidegate_server::{Drained, Server, StartError};

use crate::wire::{Response, start_request};
use crate::{TestServer, layers};

#[test]
fn healthz_responds_to_get() {
    let server = TestServer::open();
    let response = Response::to(server.address(), "GET /healthz", &["host: localhost"], b"");
    assert_eq!((response.status, response.body.as_str()), (200, r#"{"status":"ok"}"#));
    assert_eq!(response.header("content-type"), Some("application/json"));
}

#[test]
fn an_address_in_use_is_reported_with_its_listener() {
    let server = TestServer::open();
    let address = server.address().to_string();
    let layers = Loader::default().flag(Key::DatabaseUrl, "none").flag(Key::ListenHttp, &address);
    let second = Server::new(layers.text_layers("test", "")).unwrap();
    let error = server.runtime.block_on(second.open()).unwrap_err();
    assert!(matches!(error, StartError::Bind { .. }));
    let text = error.to_string();
    assert!(text.starts_with(&format!("http listener: cannot bind {address}: ")), "{text}");
    assert!(text.ends_with("; another program uses this address, choose another port"), "{text}");
}

#[test]
fn max_memory_determines_the_number_of_keys() {
    let keys = |memory: &str| {
        let text = format!("[store]\nmax_memory = \"{memory}\"\n");
        Server::new(layers(&text)).unwrap().max_keys().unwrap()
    };
    assert!(keys("64MiB") > 1_000_000);
    assert!(keys("8MiB") < keys("64MiB"));
}

/// A request in flight is answered; an idle connection does not delay the shutdown.
#[test]
fn requests_in_flight_are_answered_before_shutdown() {
    let mut server = TestServer::open();
    let address = server.address();
    let idle = TcpStream::connect(address).unwrap();
    let body = r#"{"key":"alice","limit":"client"}"#;
    let mut busy = start_request(address, "/v1/take", body);
    let running = server.running.take().unwrap();
    let shutdown = server.runtime.spawn(running.shutdown());
    // New connections are refused as soon as the listener is gone.
    while TcpStream::connect(address).is_ok() {
        std::thread::yield_now();
    }
    busy.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    busy.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with(r#"{"allowed":true,"remaining":9,"reset_after_ms":1000}"#));
    assert_eq!(server.runtime.block_on(shutdown).unwrap(), Drained::Complete);
    drop(idle);
}

/// The smallest store holds some hundred holds. Exceeding that is a failure of the store, not of
/// the caller.
#[test]
fn a_full_store_is_503() {
    let server = TestServer::with_memory("", 1 << 20);
    let hold = |key: usize| {
        let body = format!(r#"{{"key":"k{key}","limit":"client","for_ms":1000}}"#);
        server.post("/v1/hold", &body)
    };
    let response = (0..20_000).map(hold).find(|response| response.status != 200).unwrap();
    assert_eq!(response.status, 503);
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert_eq!(
        response.body,
        r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":503,"detail":"the store has no room for another hold or slot lease; retry later"}"#
    );
}
