//! The HTTP client underneath: HTTP/1.1 with TLS, connections that are kept and used again.
//!
//! It sends and receives, and nothing else: no redirects, no retries, no time-out but that of a
//! connection in the making. An adapter bounds the rest.
//!
//! Certificates are checked against the roots of the system. On a machine that has none, `http://`
//! works all the same, and `https://` fails with an error that says why.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use tower_service::Service;

use crate::adapter::NotConnected;

/// How long a connection may take to be made, to each address of a host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection is kept that nobody uses. Providers close theirs after a minute or more,
/// and one that is closed from their side may take a call with it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a silent connection is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// An HTTP client. Cheap to clone; clones share their connections.
///
/// ```
/// use tidegate_llm::adapter::Adapter;
/// use tidegate_llm::client::Client;
/// use tidegate_llm::codec::Target;
/// use tidegate_llm::{Credential, Dialect};
/// let base_url = "http://127.0.0.1:11434";
/// let target = Target::new(Dialect::Ollama, base_url, "llama3", &Credential::none())?;
/// let adapter = Adapter::new(Client::new()?, "ollama", target);
/// # let _ = adapter;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    pool: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Why there are no roots, if there are none.
    rootless: Option<Arc<io::Error>>,
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
struct NoRoots(#[source] Arc<io::Error>);

impl Client {
    /// A client with the root certificates of the system. Loading them takes some milliseconds:
    /// make one client, and clone it.
    ///
    /// # Errors
    ///
    /// If TLS cannot be set up. That there are no roots is told when they are needed.
    pub fn new() -> Result<Self, ClientError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let (builder, rootless) = match builder.clone().with_native_roots() {
            Ok(builder) => (builder, None),
            Err(error) => {
                (builder.with_root_certificates(RootCertStore::empty()), Some(Arc::new(error)))
            }
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
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Ok(Self { pool, rootless })
    }
}

impl Service<Request<Full<Bytes>>> for Client {
    type Response = Response<Incoming>;
    type Error = ClientError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, ClientError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), ClientError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        if let Some(error) = &self.rootless
            && request.uri().scheme() == Some(&Scheme::HTTPS)
        {
            let error = NotConnected(NoRoots(Arc::clone(error)).into());
            return Box::pin(std::future::ready(Err(error.into())));
        }
        let response = self.pool.request(request);
        Box::pin(async move {
            response.await.map_err(|error| {
                if error.is_connect() {
                    ClientError::NotConnected(NotConnected(error.into()))
                } else {
                    ClientError::Broken(error)
                }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_roots_tls_is_refused_with_the_reason() {
        let reason = Arc::new(io::Error::other("no such file"));
        let mut client = Client { rootless: Some(reason), ..Client::new().unwrap() };
        let request = |url| Request::post(url).body(Full::new(Bytes::new())).unwrap();
        let error = client.call(request("https://127.0.0.1:1/")).await.unwrap_err();
        let ClientError::NotConnected(NotConnected(source)) = error else { panic!("{error}") };
        assert!(source.is::<NoRoots>());
        let error = client.call(request("http://127.0.0.1:1/")).await.unwrap_err();
        let ClientError::NotConnected(NotConnected(source)) = error else { panic!("{error}") };
        assert!(source.is::<legacy::Error>(), "plain connections are tried");
    }
}
