//! Startup and shutdown.

use std::io::{Read, Write};
use std::net::TcpStream;

use tidegate_config::{Key, Loader};
use tidegate_server::{Drained, Server, StartError};

use crate::wire::{Reply, begun};
use crate::{Gate, layers};

#[test]
fn health_is_a_get() {
    let gate = Gate::open();
    let reply = Reply::to(gate.address(), "GET /healthz", &["host: localhost"], b"");
    assert_eq!((reply.status, reply.body.as_str()), (200, r#"{"status":"ok"}"#));
    assert_eq!(reply.header("content-type"), Some("application/json"));
}

#[test]
fn an_address_in_use_is_told_with_the_door_and_the_address() {
    let gate = Gate::open();
    let address = gate.address().to_string();
    let layers = Loader::default().flag(Key::DatabaseUrl, "none").flag(Key::ListenHttp, &address);
    let server = Server::new(layers.text_layers("test", "")).unwrap();
    let error = gate.runtime.block_on(server.open()).unwrap_err();
    assert!(matches!(error, StartError::Bind { .. }));
    let text = error.to_string();
    assert!(text.starts_with(&format!("http listener: cannot bind {address}: ")), "{text}");
    assert!(text.ends_with("; another program uses this address, choose another port"), "{text}");
}

#[test]
fn the_memory_of_the_plan_decides_how_many_keys_fit() {
    let keys = |memory: &str| {
        let text = format!("[store]\nmax_memory = \"{memory}\"\n");
        Server::new(layers(&text)).unwrap().max_keys().unwrap()
    };
    assert!(keys("64MiB") > 1_000_000);
    assert!(keys("8MiB") < keys("64MiB"));
}

/// A request in flight is answered; an idle connection does not delay the shutdown.
#[test]
fn requests_under_way_are_answered_before_the_end() {
    let mut gate = Gate::open();
    let address = gate.address();
    let idle = TcpStream::connect(address).unwrap();
    let body = r#"{"key":"alice","limit":"client"}"#;
    let mut busy = begun(address, "/v1/take", body);
    let running = gate.running.take().unwrap();
    let shutdown = gate.runtime.spawn(running.shutdown());
    // New connections are refused as soon as the listener is gone.
    while TcpStream::connect(address).is_ok() {
        std::thread::yield_now();
    }
    busy.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    busy.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with(r#"{"allowed":true,"remaining":9,"reset_after_ms":1000}"#));
    assert_eq!(gate.runtime.block_on(shutdown).unwrap(), Drained::Complete);
    drop(idle);
}

/// The smallest store holds some hundred holds. Exceeding that is a failure of the store, not of
/// the caller.
#[test]
fn a_store_that_cannot_answer_is_503() {
    let gate = Gate::with_memory("", 1 << 20);
    let hold = |key: usize| {
        let body = format!(r#"{{"key":"k{key}","limit":"client","for_ms":1000}}"#);
        gate.post("/v1/hold", &body)
    };
    let reply = (0..20_000).map(hold).find(|reply| reply.status != 200).unwrap();
    assert_eq!(reply.status, 503);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(
        reply.body,
        r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":503,"detail":"the store is full"}"#
    );
}
