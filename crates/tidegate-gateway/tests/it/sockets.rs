//! The gateway's own HTTP client over real sockets, in real time.

use std::time::Duration;

use http_body_util::BodyExt as _;
use tidegate::pacer::PoolSize;
use tidegate_gateway::{Gateway, Upstream};
use tidegate_providers::Dialect;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{FAMILIES, FullResponse, Mode, PEER, account, chat, is_idle, send, simulator};

#[tokio::test]
async fn every_dialect_works_over_a_socket() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let server = simulator.clone();
        let serving = tokio::spawn(async move { server.serve(listener).await });
        let upstream = Upstream::new(name, dialect, &base).unwrap();
        let upstream = upstream.concurrency(PoolSize::Fixed(8));
        let gateway =
            Gateway::builder(&crate::support::engine()).upstream(upstream).build().unwrap();
        for mode in [Mode::Single, Mode::Stream, Mode::Single] {
            let response = send(&gateway, chat(name, mode)).await;
            assert_eq!(response.status, 200, "{name} {mode:?}");
        }
        assert!(is_idle(&gateway), "{name}");
        serving.abort();
    }
}

/// A gateway to one OpenAI provider at a base URL.
fn gateway(base: &str, change: impl FnOnce(Upstream) -> Upstream) -> Gateway {
    let upstream = change(Upstream::new("openai", Dialect::OpenAi, base).unwrap());
    Gateway::builder(&crate::support::engine()).upstream(upstream).build().unwrap()
}

fn message(response: &FullResponse) -> String {
    response.json()["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_closed_port_is_a_502_with_its_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let gateway = gateway(&format!("http://{address}"), |upstream| upstream.max_retries(0));
    let response = send(&gateway, chat("openai", Mode::Single)).await;
    assert_eq!(response.status, 502);
    let expected =
        format!("Tidegate: openai could not be reached: connection refused by {address}");
    assert_eq!(message(&response), expected);
}

#[tokio::test]
async fn an_unknown_host_is_a_502_with_its_name() {
    let gateway = gateway("http://nope.invalid", |upstream| upstream.max_retries(0));
    let response = send(&gateway, chat("openai", Mode::Single)).await;
    assert_eq!(response.status, 502);
    let expected =
        "Tidegate: openai could not be reached: host name \"nope.invalid\" cannot be resolved";
    assert_eq!(message(&response), expected);
}

#[tokio::test]
async fn a_failed_handshake_is_reported_and_not_retried() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        }
    });
    let gateway = gateway(&base, |upstream| upstream);
    let response = send(&gateway, chat("openai", Mode::Single)).await;
    assert_eq!((response.status.as_u16(), response.number("x-tidegate-attempts")), (502, 1));
    assert_eq!(response.header("x-should-retry"), "false");
    let expected =
        "Tidegate: openai could not be reached: TLS handshake with \"127.0.0.1\" failed: ";
    assert!(message(&response).starts_with(expected), "{}", message(&response));
    assert!(is_idle(&gateway));
}

#[tokio::test]
async fn a_stalled_handshake_is_a_504_with_the_connect_timeout() {
    // The kernel accepts the connection; the server never responds.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let gateway = gateway(&base, |upstream| {
        upstream.connect_timeout(Duration::from_millis(50)).max_retries(0)
    });
    let response = send(&gateway, chat("openai", Mode::Single)).await;
    assert_eq!(response.status, 504);
    let expected = "Tidegate: openai could not be reached: no connection within 50ms";
    assert_eq!(message(&response), expected);
    assert!(is_idle(&gateway));
}

const EVENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Elbe\"}}]}\n\n";

/// A server that sends a stream head and one of `bodies` per connection, and leaves the connections
/// open.
async fn start_stalling_server(bodies: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut open = Vec::new();
        for body in bodies {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 4_096];
            assert!(socket.read(&mut request).await.unwrap() > 0);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            open.push(socket);
        }
        // Read from the last connection until the gateway closes it.
        if let Some(last) = open.last_mut() {
            let _ = last.read(&mut [0; 4_096]).await;
        }
    });
    base
}

#[tokio::test]
async fn a_stalled_stream_is_retried_before_its_first_event_and_aborted_after() {
    let base = start_stalling_server(&["", EVENT]).await;
    let gateway = gateway(&base, |upstream| {
        let upstream = upstream.first_byte_timeout(Duration::from_millis(300));
        upstream.idle_timeout(Duration::from_millis(50)).retry_base(Duration::from_millis(1))
    });
    let mut response = gateway.handle(chat("openai", Mode::Stream), PEER).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-tidegate-attempts"], "2");
    let first = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), EVENT);
    let error = response.body_mut().frame().await.unwrap().unwrap_err();
    let text = "the provider stopped sending: idle timeout: nothing received for 50ms";
    assert_eq!(error.to_string(), text);
    assert!(is_idle(&gateway));
}
