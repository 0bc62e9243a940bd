//! The HTTP client underneath: HTTP/1.1 with TLS, connections that are kept and used again.
//!
//! It sends and receives, and nothing else: no redirects, no retries, no time-out but that of a
//! connection in the making ([`set_connect_timeout`]). An adapter bounds the rest. A connection that
//! cannot be made fails with a [`ConnectionError`] that says why.
//!
//! Certificates are checked against the roots of the system, unless a request brings [`Roots`] of its
//! own. On a machine that has none, `http://` works all the same, and `https://` fails with an error
//! that says why. A request that carries a [`Proxy`] goes through it.

mod connector;
mod dialer;
mod future;
mod pools;
mod probe;
mod resolver;
mod roots;
mod tunnel;
mod verifier;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::PROXY_AUTHORIZATION;
use http::uri::Scheme;
use http::{Extensions, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use tower_service::Service;

use crate::call::connection::Because;
use crate::call::{BoxError, ConnectionError};
use crate::proxy::Proxy;
use future::ClientFuture;
use pools::{Pools, Way};
pub use roots::Roots;

/// How long making a connection may take unless a request says otherwise: ten seconds.
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sets how long making a connection for a request may take: name resolution, TCP and TLS together.
/// A request carries it among its extensions; without it, [`DEFAULT_CONNECT_TIMEOUT`] holds.
///
/// Connections are shared only by requests with the same connect time-out.
///
/// ```
/// use std::time::Duration;
/// use tidegate_llm::client::set_connect_timeout;
/// let mut request = http::Request::new(());
/// set_connect_timeout(request.extensions_mut(), Duration::from_secs(2));
/// ```
pub fn set_connect_timeout(extensions: &mut Extensions, timeout: Duration) {
    extensions.insert(ConnectTimeout(timeout));
}

#[derive(Clone, Copy, Debug)]
struct ConnectTimeout(Duration);

/// An HTTP client. Cheap to clone; clones share their connections. `B` is the body of requests.
///
/// ```
/// use tidegate_llm::adapter::Adapter;
/// use tidegate_llm::client::Client;
/// use tidegate_llm::adapter::Target;
/// use tidegate_llm::{Credential, Dialect};
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
    pools: Pools<B>,
    /// Why there are no roots, if there are none.
    rootless: Option<io::Error>,
}

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
    #[error("TLS cannot be set up: {0}")]
    Tls(#[source] BoxError),
    /// A set of root certificates is empty.
    #[error("no root certificate: give at least one")]
    NoRoots,
    /// A root certificate cannot be used.
    #[error("root certificate {number} cannot be used: {source}")]
    Root {
        /// Which one, counted from one.
        number: usize,
        /// Why.
        source: BoxError,
    },
    /// A server cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectionError),
    /// A proxy cannot reach the server.
    #[error("proxy {proxy} answered with status {status}")]
    Proxy {
        /// Host and port of the proxy.
        proxy: String,
        /// What it answered.
        status: StatusCode,
    },
    /// A proxy did not answer.
    #[error("proxy {proxy} did not answer")]
    SilentProxy {
        /// Host and port of the proxy.
        proxy: String,
    },
    /// There was no connection to send a request on.
    #[error("the request was not sent: no connection{}", Because(&**.0))]
    NotConnected(#[source] BoxError),
    /// The connection broke after a request was sent, or in the middle of it.
    #[error("the request was not answered: {0}")]
    Broken(#[source] BoxError),
}

impl From<rustls::Error> for ClientError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error.into())
    }
}

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
        let (tls, rootless) = match roots::native() {
            Ok(native) => (roots::checking(native)?, None),
            Err(error) => (roots::trusting_nobody()?, Some(error)),
        };
        let pools = Pools::new(Arc::new(tls));
        Ok(Self { inner: Arc::new(Inner { pools, rootless }) })
    }
}

impl<B> Client<B> {
    /// Why a request cannot be sent, if there are no roots to check its server against.
    fn no_roots(&self, scheme: Option<&Scheme>, way: &Way) -> Option<ConnectionError> {
        let error = self.inner.rootless.as_ref()?;
        let needs_roots = scheme == Some(&Scheme::HTTPS) && way.roots.is_none();
        let copy = || io::Error::new(error.kind(), error.to_string());
        needs_roots.then(|| ConnectionError::NoRoots(copy()))
    }
}

/// How the connection for a request is made.
fn way_of(extensions: &Extensions) -> Way {
    let connect_timeout = extensions.get::<ConnectTimeout>();
    Way {
        connect_timeout: connect_timeout.map_or(DEFAULT_CONNECT_TIMEOUT, |timeout| timeout.0),
        roots: extensions.get().cloned(),
        proxy: extensions.get().cloned(),
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

    fn call(&mut self, mut request: Request<B>) -> ClientFuture {
        let way = way_of(request.extensions());
        if let Some(error) = self.no_roots(request.uri().scheme(), &way) {
            return ClientFuture::failed(ClientError::NotConnected(error.into()));
        }
        // A tunnel is opened with it; without one the proxy reads it from each request.
        if request.uri().scheme() == Some(&Scheme::HTTP)
            && let Some(value) = way.proxy.as_ref().and_then(Proxy::authorization)
        {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
        }
        ClientFuture::sent(self.inner.pools.get(way).request(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::broken;
    use crate::call::Broken;

    #[tokio::test]
    async fn without_roots_tls_is_refused_with_the_reason() {
        let tls = roots::trusting_nobody().unwrap();
        let rootless = Some(io::Error::other("no such file"));
        let inner = Inner { pools: Pools::new(Arc::new(tls)), rootless };
        let mut client = Client { inner: Arc::new(inner) };
        let request = |url| Request::post(url).body(Full::new(Bytes::new())).unwrap();
        let error = client.call(request("https://127.0.0.1:1/")).await.unwrap_err();
        assert_eq!(broken(&error), Broken::Tls);
        assert_eq!(
            error.to_string(),
            "the request was not sent: no connection: the root certificates of the system cannot \
             be loaded: no such file"
        );
        let error = client.call(request("http://127.0.0.1:1/")).await.unwrap_err();
        assert_eq!(broken(&error), Broken::Refused, "plain connections are tried");
    }
}
