//! A server on a free port, and a client that asks it.

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

/// A running server. It ends with the test.
pub(super) struct Door {
    pub(super) address: SocketAddr,
    server: JoinHandle<()>,
}

impl Door {
    /// Serves a router that is told of its peers.
    pub(super) async fn open(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let server = tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
        Self { address, server }
    }

    /// Serves a router that is not.
    pub(super) async fn open_without_peers(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, server }
    }

    pub(super) async fn get(&self, path: &str, lines: &[(&str, &str)]) -> Reply {
        self.ask(Method::GET, path, lines).await
    }

    /// Asks as a user.
    pub(super) async fn as_user(&self, user: &str) -> Reply {
        self.get("/", &[("x-user", user)]).await
    }

    pub(super) async fn ask(&self, method: Method, path: &str, lines: &[(&str, &str)]) -> Reply {
        let (parts, body) = self.begin(method, path, lines).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Reply { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Asks, and leaves the body to the caller.
    pub(super) async fn begin(
        &self,
        method: Method,
        path: &str,
        lines: &[(&str, &str)],
    ) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let io = TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", "test");
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}
