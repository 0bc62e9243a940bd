//! A server on a free port, and a client for it.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use http::header::HeaderMap;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A running server, stopped on drop.
pub(super) struct TestServer {
    pub(super) address: SocketAddr,
    server: JoinHandle<()>,
}

impl TestServer {
    /// Serves a router with peer addresses.
    pub(super) async fn start(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let server = tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
        Self { address, server }
    }

    /// Serves a router without peer addresses.
    pub(super) async fn start_without_peers(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, server }
    }

    pub(super) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> TestResponse {
        self.request(Method::GET, path, headers).await
    }

    /// Sends a GET request with the header `x-user`.
    pub(super) async fn as_user(&self, user: &str) -> TestResponse {
        self.get("/", &[("x-user", user)]).await
    }

    pub(super) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> TestResponse {
        let (parts, body) = self.send(method, path, headers).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        TestResponse { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Sends a request and leaves the response body to the caller.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let io = TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", "test");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A response with its complete body.
#[derive(Debug)]
pub(super) struct TestResponse {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl TestResponse {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}
