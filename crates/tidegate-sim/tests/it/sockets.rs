//! Tests over real sockets, in real time.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_sim::{Delay, Dialect, Fault, Limits, Simulator};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::client::{Call, account, simulator, with};

async fn serve(simulator: &Simulator) -> (SocketAddr, JoinHandle<std::io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = simulator.clone();
    (address, tokio::spawn(async move { server.serve(listener).await }))
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

#[tokio::test]
async fn calls_are_served_and_limited() {
    let simulator = simulator(Dialect::Anthropic, Limits::new().requests_per_minute(2));
    let (address, _server) = serve(&simulator).await;
    let call = Call::new(Dialect::Anthropic).output(5);
    for status in [200, 200, 429] {
        let response = call.send_on(connect(address).await).await.unwrap();
        assert_eq!(response.status, status);
    }
    assert_eq!(simulator.ledger().throttled(), 1);
}

#[tokio::test]
async fn concurrent_callers_do_not_exceed_the_limit() {
    let simulator = simulator(Dialect::Mistral, Limits::new().requests_per_minute(10));
    let (address, _server) = serve(&simulator).await;
    let calls = (0..40).map(|_| async move {
        let call = Call::new(Dialect::Mistral).field("stream", true).output(20);
        call.send_on(connect(address).await).await.unwrap().status
    });
    let statuses = futures_util::future::join_all(calls).await;
    let admitted = statuses.iter().filter(|status| **status == 200).count();
    // One request is refilled every six seconds; a slow machine may see one more.
    assert!((10..=12).contains(&admitted), "{admitted}");
    assert_eq!(simulator.ledger().throttled(), 40 - admitted as u64);
}

#[tokio::test]
async fn stream_arrives_token_by_token() {
    let account =
        account(Dialect::OpenAi, Limits::new()).per_token(Delay::fixed(Duration::from_millis(5)));
    let simulator = with(account);
    let (address, _server) = serve(&simulator).await;
    let call = Call::new(Dialect::OpenAi).field("stream", true).output(10);
    let response = call.send_on(connect(address).await).await.unwrap();
    assert!(response.is_complete);
    assert_eq!(response.events().len(), 12);
    let entry = simulator.ledger().entries().remove(0);
    assert!(entry.ended.unwrap() - entry.at >= Duration::from_millis(45));
}

#[tokio::test]
async fn cut_stream_ends_early() {
    let simulator = simulator(Dialect::OpenAi, Limits::new());
    let (address, _server) = serve(&simulator).await;
    simulator.inject("main", Fault::Cut { after: 3 }, 1).unwrap();
    let call = Call::new(Dialect::OpenAi).field("stream", true).output(10);
    let response = call.send_on(connect(address).await).await.unwrap();
    assert_eq!((response.status, response.is_complete), (200, false));
    assert_eq!(response.events().len(), 4);
}

#[tokio::test]
async fn reset_closes_with_rst() {
    let simulator = simulator(Dialect::OpenAi, Limits::new());
    let (address, _server) = serve(&simulator).await;
    simulator.inject("main", Fault::Reset, 1).unwrap();
    let call = Call::new(Dialect::OpenAi);
    let body = call.body.to_string();
    let request = format!(
        "POST {} HTTP/1.1\r\nhost: sim\r\nauthorization: Bearer secret-key\r\ncontent-length: {}\r\n\r\n{body}",
        call.path,
        body.len()
    );
    let mut socket = connect(address).await;
    socket.write_all(request.as_bytes()).await.unwrap();
    let error = socket.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(call.send_on(connect(address).await).await.unwrap().status, 200);
}

#[tokio::test]
async fn closed_port_refuses_and_reopens() {
    let simulator = simulator(Dialect::OpenAi, Limits::new());
    let (address, server) = serve(&simulator).await;
    let call = Call::new(Dialect::OpenAi).output(1);
    assert_eq!(call.send_on(connect(address).await).await.unwrap().status, 200);
    simulator.refuse_connections(Duration::from_millis(200));
    // Until the server notices, connections are accepted and then reset.
    while !matches!(
        TcpStream::connect(address).await,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused
    ) {
        assert!(!server.is_finished());
        assert!(simulator.elapsed() < Duration::from_secs(60), "the port was never closed");
    }
    let socket = loop {
        match TcpStream::connect(address).await {
            Ok(socket) => break socket,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    assert!(simulator.elapsed() >= Duration::from_millis(200));
    assert_eq!(call.send_on(socket).await.unwrap().status, 200);
}

#[tokio::test]
async fn dropping_the_server_closes_connections() {
    let simulator = simulator(Dialect::OpenAi, Limits::new());
    let (address, server) = serve(&simulator).await;
    let mut socket = connect(address).await;
    socket.write_all(b"POST /v1").await.unwrap();
    server.abort();
    assert!(server.await.unwrap_err().is_cancelled());
    // It does not matter how it ends.
    let mut rest = Vec::new();
    let ended = socket.read_to_end(&mut rest).await;
    assert!(ended.is_err() || rest.is_empty());
    assert!(TcpStream::connect(address).await.is_err());
}
