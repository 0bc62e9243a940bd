//! HTTP/1.1 client with TLS and connection pools.
//!
//! It follows no redirects, does not retry, and has no timeout except for connecting
//! ([`set_connect_timeout`]); adapters bound the rest. A failed connection is reported as a
//! [`ConnectionError`].
//!
//! Certificates are verified against the roots of the system, unless a request carries its own
//! [`Roots`]. On a system without roots, `http://` works and `https://` fails with the reason. A
//! request that carries a [`Proxy`] goes through it.

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
use http::{Extensions, Request, Response};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use tower_service::Service;

use crate::call::{BoxError, ConnectionError};
use crate::proxy::Proxy;
use future::ClientFuture;
use pools::{ConnectOptions, Pools};
pub use roots::Roots;

/// Default connect timeout: ten seconds.
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sets the connect timeout in the extensions of a request: name resolution, TCP and TLS together.
/// Default: [`DEFAULT_CONNECT_TIMEOUT`].
///
/// Only requests with the same connect timeout share connections.
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

/// HTTP client. Cheap to clone; clones share their connections. `B` is the body type of requests.
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
    /// Why the roots of the system could not be loaded, if so.
    roots_error: Option<io::Error>,
}

impl<B> Clone for Client<B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<B> fmt::Debug for Client<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("roots_error", &self.inner.roots_error)
            .finish_non_exhaustive()
    }
}

impl From<rustls::Error> for ConnectionError {
    fn from(error: rustls::Error) -> Self {
        Self::TlsSetup(error.into())
    }
}

impl Client {
    /// Creates a client with the root certificates of the system, for bodies in memory. See
    /// [`with_body_type`](Client::with_body_type).
    ///
    /// # Errors
    ///
    /// Fails if TLS cannot be set up. Missing roots are reported by the first request that needs
    /// them.
    pub fn new() -> Result<Self, ConnectionError> {
        Self::with_body_type()
    }
}

impl<B> Client<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
{
    /// Creates a client with the root certificates of the system for any body type. Loading the
    /// certificates takes some milliseconds: create one client and clone it.
    ///
    /// # Errors
    ///
    /// Fails if TLS cannot be set up. Missing roots are reported by the first request that needs
    /// them.
    pub fn with_body_type() -> Result<Self, ConnectionError> {
        let (tls, roots_error) = match roots::native() {
            Ok(native) => (roots::tls_with_roots(native)?, None),
            Err(error) => (roots::tls_without_roots()?, Some(error)),
        };
        let pools = Pools::new(Arc::new(tls));
        Ok(Self { inner: Arc::new(Inner { pools, roots_error }) })
    }
}

impl<B> Client<B> {
    /// Returns an error if the request needs the roots of the system and they could not be loaded.
    fn no_roots(
        &self,
        scheme: Option<&Scheme>,
        options: &ConnectOptions,
    ) -> Option<ConnectionError> {
        let error = self.inner.roots_error.as_ref()?;
        let needs_roots = scheme == Some(&Scheme::HTTPS) && options.roots.is_none();
        let copy = || io::Error::new(error.kind(), error.to_string());
        needs_roots.then(|| ConnectionError::NoRoots(copy()))
    }
}

/// Reads the connect options from the extensions of a request.
fn connect_options(extensions: &Extensions) -> ConnectOptions {
    let connect_timeout = extensions.get::<ConnectTimeout>();
    ConnectOptions {
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
    type Error = ConnectionError;
    type Future = ClientFuture;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> ClientFuture {
        let options = connect_options(request.extensions());
        if let Some(error) = self.no_roots(request.uri().scheme(), &options) {
            return ClientFuture::failed(ConnectionError::NotSent(error.into()));
        }
        // For `https` the tunnel is opened with it; for `http` the proxy expects it in each
        // request.
        if request.uri().scheme() == Some(&Scheme::HTTP)
            && let Some(value) = options.proxy.as_ref().and_then(Proxy::authorization)
        {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
        }
        ClientFuture::sent(self.inner.pools.get(options).request(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::connection_failure;
    use crate::call::ConnectionFailure;

    #[tokio::test]
    async fn without_roots_https_fails_with_the_reason() {
        let tls = roots::tls_without_roots().unwrap();
        let roots_error = Some(io::Error::other("no such file"));
        let inner = Inner { pools: Pools::new(Arc::new(tls)), roots_error };
        let mut client = Client { inner: Arc::new(inner) };
        let request = |url| Request::post(url).body(Full::new(Bytes::new())).unwrap();
        let error = client.call(request("https://127.0.0.1:1/")).await.unwrap_err();
        assert_eq!(connection_failure(&error), ConnectionFailure::Tls);
        assert_eq!(
            error.to_string(),
            "the request was not sent: no connection: the root certificates of the system cannot \
             be loaded: no such file"
        );
        let error = client.call(request("http://127.0.0.1:1/")).await.unwrap_err();
        assert_eq!(connection_failure(&error), ConnectionFailure::Refused, "http needs no roots");
    }
}
