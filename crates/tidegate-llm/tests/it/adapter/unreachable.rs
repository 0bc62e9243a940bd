//! Servers that cannot be reached, over real sockets: kind and text of the error.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};
use tidegate_llm::adapter::{self, Adapter};
use tidegate_llm::client::{Client, set_connect_timeout};
use tidegate_llm::{CallError, ConnectionFailure};
use tidegate_providers::Dialect;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use super::{call, target};

/// Returns the error of a call to a base URL.
async fn error(base_url: &str) -> CallError {
    let target = target(Dialect::OpenAi, base_url, &[]);
    Adapter::new(Client::new().unwrap(), "openai", target).oneshot(call()).await.unwrap_err()
}

fn connection_failure(error: &CallError) -> Option<ConnectionFailure> {
    match error {
        CallError::Connection { kind, .. } => Some(*kind),
        _ => None,
    }
}

async fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test]
async fn closed_port_is_reported_with_its_address() {
    let address = closed_port().await;
    let error = error(&format!("http://{address}/v1")).await;
    assert_eq!(
        (connection_failure(&error), error.was_sent()),
        (Some(ConnectionFailure::Refused), false)
    );
    let text = format!("openai cannot be reached: connection refused by {address}");
    assert_eq!(error.to_string(), text);
    assert_eq!(error.connection_reason(), Some(format!("connection refused by {address}")));
}

#[tokio::test]
async fn closed_port_of_a_named_host_is_reported_with_its_addresses() {
    let address = closed_port().await;
    let error = error(&format!("http://localhost:{}/v1", address.port())).await;
    assert_eq!(
        (connection_failure(&error), error.was_sent()),
        (Some(ConnectionFailure::Refused), false)
    );
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[tokio::test]
async fn unknown_host_is_reported_by_name() {
    let error = error("http://nope.invalid/v1").await;
    assert_eq!(
        (connection_failure(&error), error.was_sent()),
        (Some(ConnectionFailure::HostNotFound), false)
    );
    let text = r#"openai cannot be reached: host name "nope.invalid" cannot be resolved"#;
    assert_eq!(error.to_string(), text);
}

/// Starts a server with a self-signed certificate for `example.org`. It accepts one handshake.
async fn self_signed() -> SocketAddr {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["example.org".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    tokio::task::spawn_blocking(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        while server.complete_io(&mut socket).is_ok_and(|(read, _)| read > 0) {}
    });
    address
}

#[tokio::test]
async fn untrusted_certificate_is_reported_with_names_and_reason() {
    let port = self_signed().await.port();
    let error = error(&format!("https://localhost:{port}/v1")).await;
    assert_eq!(
        (connection_failure(&error), error.was_sent()),
        (Some(ConnectionFailure::Tls), false)
    );
    assert_eq!(
        error.to_string(),
        r#"openai cannot be reached: certificate of "localhost" (names: example.org) is not trusted: unknown issuer"#
    );
}

#[tokio::test]
async fn server_without_tls_fails_the_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let error = error(&format!("https://{address}/v1")).await;
    assert_eq!(
        (connection_failure(&error), error.was_sent()),
        (Some(ConnectionFailure::Tls), false)
    );
    let text = r#"openai cannot be reached: TLS handshake with "127.0.0.1" failed: "#;
    assert!(error.to_string().starts_with(text), "{error}");
}

#[tokio::test]
async fn connection_closed_during_the_handshake_is_not_a_tls_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { drop(listener.accept().await.unwrap()) });
    let error = error(&format!("https://{address}/v1")).await;
    assert_eq!(
        (connection_failure(&error), error.was_sent()),
        (Some(ConnectionFailure::NotConnected), false)
    );
    let text = r#"openai cannot be reached: connection to "127.0.0.1" failed: "#;
    assert!(error.to_string().starts_with(text), "{error}");
}

/// Creates a request with a connect timeout of 50 ms.
fn with_short_timeout(url: &str) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    *request.uri_mut() = url.parse().unwrap();
    set_connect_timeout(request.extensions_mut(), Duration::from_millis(50));
    request
}

#[tokio::test]
async fn connect_timeout_covers_the_handshake_but_not_the_response() {
    let client = Client::new().unwrap();
    let slow = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let request = with_short_timeout(&format!("http://{}/v1", slow.local_addr().unwrap()));
    let sent = tokio::spawn(client.clone().oneshot(request));
    let (mut socket, _) = slow.accept().await.unwrap();

    // TCP connects, and the handshake stalls.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let request = with_short_timeout(&format!("https://{}/v1", silent.local_addr().unwrap()));
    let error = client.oneshot(request).await.unwrap_err();
    assert_eq!(adapter::connection_failure(&error), ConnectionFailure::ConnectTimedOut);
    assert!(error.to_string().ends_with("no connection within 50ms"), "{error}");

    // The first request has waited longer than its connect timeout.
    socket.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    assert_eq!(sent.await.unwrap().unwrap().status(), 204);
}

#[tokio::test]
async fn server_that_never_responds_is_a_first_byte_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let target = target(Dialect::OpenAi, &format!("http://{address}/v1"), &[]);
    let adapter = Adapter::new(Client::new().unwrap(), "openai", target);
    let adapter = adapter.timeout(Duration::from_millis(50));
    let error = adapter.oneshot(call()).await.unwrap_err();
    assert_eq!(
        (connection_failure(&error), error.was_sent()),
        (Some(ConnectionFailure::TimedOut), true)
    );
    assert_eq!(
        error.to_string(),
        "openai did not answer in time: first-byte timeout: the response did not begin within 50ms"
    );
}
