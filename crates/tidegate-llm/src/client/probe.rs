//! Whether a server can be reached, found out without a key and without a cost.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::uri::Scheme;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;
use tower_service::Service as _;

use super::pools::Way;
use super::{Client, ClientError, Roots};
use crate::proxy::Proxy;

impl<B> Client<B> {
    /// Finds out whether a server can be reached as a request of these extensions would reach it:
    /// name resolution, TCP and TLS within the time-out, through the proxy if there is one. Nothing is
    /// sent to the server, but for a plain `HEAD` where a proxy takes whole URLs (`http://`), since
    /// only its answer tells.
    ///
    /// # Errors
    /// Why it cannot be reached.
    pub async fn probe(
        &self,
        uri: Uri,
        connect_timeout: Duration,
        roots: Option<Roots>,
        proxy: Option<Proxy>,
    ) -> Result<(), ClientError> {
        let way = Way { connect_timeout, roots, proxy };
        if let Some(error) = self.no_roots(uri.scheme(), &way) {
            return Err(error.into());
        }
        self.inner.pools.connector(way.clone()).call(uri.clone()).await?;
        match way.proxy.clone() {
            Some(proxy) if uri.scheme() == Some(&Scheme::HTTP) => {
                self.probe_through(&proxy, uri, way).await
            }
            _ => Ok(()),
        }
    }

    /// Asks a proxy for the head of what is at a URL.
    async fn probe_through(&self, proxy: &Proxy, uri: Uri, way: Way) -> Result<(), ClientError> {
        let limit = way.connect_timeout;
        let host = uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = Method::HEAD;
        *request.uri_mut() = uri;
        request.headers_mut().extend(host.map(|host| (HOST, host)));
        if let Some(value) = proxy.authorization() {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
        }
        let connector = self.inner.pools.connector(way);
        let client = legacy::Client::builder(TokioExecutor::new()).build(connector);
        match timeout(limit, client.request(request)).await {
            Ok(Ok(response)) if refused(response.status()) => {
                let (proxy, status) = (proxy.host_port().to_owned(), response.status());
                Err(ClientError::Proxy { proxy, status })
            }
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                Err(ClientError::SilentProxy { proxy: proxy.host_port().to_owned() })
            }
        }
    }
}

/// Whether a status is that of a proxy that does not get through.
const fn refused(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::PROXY_AUTHENTICATION_REQUIRED
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}
