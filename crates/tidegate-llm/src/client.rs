//! The HTTP client underneath: HTTP/1.1 with TLS, connections that are kept and used again.
//!
//! It sends and receives, and nothing else: no redirects, no retries, no time-out but that of a
//! connection in the making. An adapter bounds the rest.
//!
//! Certificates are checked against the roots of the system. On a machine that has none, `http://`
//! works all the same, and `https://` fails with an error that says why.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::{Handle, Id};
use tower_service::Service;

use crate::adapter::NotConnected;
use crate::call::BoxError;

/// How long a connection may take to be made, to each address of a host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection is kept that nobody uses. Providers close theirs after a minute or more,
/// and one that is closed from their side may take a call with it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a silent connection is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// An HTTP client. Cheap to clone; clones share their connections. `B` is the body of requests.
///
/// ```
/// use tidegate_llm::adapter::Adapter;
/// use tidegate_llm::client::Client;
/// use tidegate_providers::request::Target;
/// use tidegate_providers::{Credential, Dialect};
/// let base_url = "http://127.0.0.1:11434";
/// let target = Target::new(Dialect::Ollama, base_url, "llama3", &Credential::none())?;
/// let adapter = Adapter::new(Client::new()?, "ollama", target);
/// # let _ = adapter;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Client<B = Full<Bytes>> {
    inner: Arc<Inner<B>>,
}

struct Inner<B> {
    connector: HttpsConnector<HttpConnector>,
    /// Connections, by the runtime that they live in. They end with it, and one that lives elsewhere
    /// has to be woken by another thread for every byte.
    pools: ArcSwap<Vec<(Id, Pool<B>)>>,
    /// Why there are no roots, if there are none.
    rootless: Option<io::Error>,
}

type Pool<B> = legacy::Client<HttpsConnector<HttpConnector>, B>;

/// Runtimes whose connections are kept apart. Beyond that the oldest are let go.
const MAX_RUNTIMES: usize = 64;

impl<B> Clone for Client<B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<B> fmt::Debug for Client<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("rootless", &self.inner.rootless).finish_non_exhaustive()
    }
}

/// Why there is no client, or no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    /// There was no connection to send a request on.
    #[error("the request was not sent")]
    NotConnected(#[from] NotConnected),
    /// The connection broke after a request was sent, or in the middle of it.
    #[error("the request was not answered")]
    Broken(#[source] legacy::Error),
}

/// There is nothing to check a certificate against.
#[derive(Debug, thiserror::Error)]
#[error("the root certificates of the system cannot be loaded")]
struct NoRoots(#[source] io::Error);

impl Client {
    /// A client with the root certificates of the system, for bodies that are all there. See
    /// [`of_bodies`](Client::of_bodies).
    ///
    /// # Errors
    ///
    /// If TLS cannot be set up. That there are no roots is told when they are needed.
    pub fn new() -> Result<Self, ClientError> {
        Self::of_bodies()
    }
}

impl<B> Client<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
{
    /// A client with the root certificates of the system. Loading them takes some milliseconds:
    /// make one client, and clone it.
    ///
    /// # Errors
    ///
    /// If TLS cannot be set up. That there are no roots is told when they are needed.
    pub fn of_bodies() -> Result<Self, ClientError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let (builder, rootless) = match builder.clone().with_native_roots() {
            Ok(builder) => (builder, None),
            Err(error) => (builder.with_root_certificates(RootCertStore::empty()), Some(error)),
        };
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_keepalive(Some(KEEPALIVE));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(builder.with_no_client_auth())
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let inner = Inner { connector, pools: ArcSwap::default(), rootless };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl<B> Inner<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
{
    /// The connections of the runtime that this is called in.
    fn pool(&self) -> Pool<B> {
        let here = Handle::current().id();
        let of_here = |pools: &Vec<(Id, Pool<B>)>| {
            pools.iter().find(|(id, _)| *id == here).map(|(_, pool)| pool.clone())
        };
        if let Some(pool) = of_here(&self.pools.load()) {
            return pool;
        }
        let pool: Pool<B> = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(self.connector.clone());
        self.pools.rcu(|pools| {
            let mut pools = Vec::clone(pools);
            if of_here(&pools).is_none() {
                if pools.len() >= MAX_RUNTIMES {
                    pools.remove(0);
                }
                pools.push((here, pool.clone()));
            }
            pools
        });
        pool
    }
}

impl<B> Service<Request<B>> for Client<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<Incoming>;
    type Error = ClientError;
    type Future = ClientFuture;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), ClientError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ClientFuture {
        if let Some(error) = &self.inner.rootless
            && request.uri().scheme() == Some(&Scheme::HTTPS)
        {
            let error = io::Error::new(error.kind(), error.to_string());
            return ClientFuture(Err(Some(NotConnected(NoRoots(error).into()).into())));
        }
        ClientFuture(Ok(self.inner.pool().request(request)))
    }
}

/// A request under way: sent, or failed before.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct ClientFuture(Result<legacy::ResponseFuture, Option<ClientError>>);

impl Future for ClientFuture {
    type Output = Result<Response<Incoming>, ClientError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(sent) => Pin::new(sent).poll(context).map_err(|error| {
                if error.is_connect() {
                    ClientError::NotConnected(NotConnected(error.into()))
                } else {
                    ClientError::Broken(error)
                }
            }),
            // As with others, there is nothing to wait for after the end.
            Err(failed) => failed.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_roots_tls_is_refused_with_the_reason() {
        let mut client = Client::new().unwrap();
        let rootless = Some(io::Error::other("no such file"));
        let connector = client.inner.connector.clone();
        let inner = Inner { connector, pools: ArcSwap::default(), rootless };
        client.inner = Arc::new(inner);
        let request = |url| Request::post(url).body(Full::new(Bytes::new())).unwrap();
        let error = client.call(request("https://127.0.0.1:1/")).await.unwrap_err();
        let ClientError::NotConnected(NotConnected(source)) = error else { panic!("{error}") };
        assert!(source.is::<NoRoots>());
        let error = client.call(request("http://127.0.0.1:1/")).await.unwrap_err();
        let ClientError::NotConnected(NotConnected(source)) = error else { panic!("{error}") };
        assert!(source.is::<legacy::Error>(), "plain connections are tried");
    }
}
