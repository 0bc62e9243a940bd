//! Connectivity check of a server, without a key and without cost.

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

use super::pools::ConnectOptions;
use super::{Client, Roots};
use crate::call::ConnectionError;
use crate::proxy::Proxy;

impl<B> Client<B> {
    /// Checks whether a server can be reached with these options: name resolution, TCP and TLS
    /// within the timeout, through the proxy if one is set. Nothing is sent to the server, except
    /// for a `HEAD` request if an `http://` URL goes through a proxy, since only the response tells
    /// then.
    ///
    /// # Errors
    /// Fails with the reason why the server cannot be reached.
    pub async fn probe(
        &self,
        uri: Uri,
        connect_timeout: Duration,
        roots: Option<Roots>,
        proxy: Option<Proxy>,
    ) -> Result<(), ConnectionError> {
        let options = ConnectOptions { connect_timeout, roots, proxy };
        if let Some(error) = self.no_roots(uri.scheme(), &options) {
            return Err(error);
        }
        self.inner.pools.connector(options.clone()).call(uri.clone()).await?;
        match options.proxy.clone() {
            Some(proxy) if uri.scheme() == Some(&Scheme::HTTP) => {
                self.probe_through(&proxy, uri, options).await
            }
            _ => Ok(()),
        }
    }

    /// Sends a `HEAD` request for a URL to a proxy.
    async fn probe_through(
        &self,
        proxy: &Proxy,
        uri: Uri,
        options: ConnectOptions,
    ) -> Result<(), ConnectionError> {
        let limit = options.connect_timeout;
        let host = uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = Method::HEAD;
        *request.uri_mut() = uri;
        request.headers_mut().extend(host.map(|host| (HOST, host)));
        if let Some(value) = proxy.authorization() {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
        }
        let connector = self.inner.pools.connector(options);
        let client = legacy::Client::builder(TokioExecutor::new()).build(connector);
        match timeout(limit, client.request(request)).await {
            Ok(Ok(response)) if is_proxy_failure(response.status()) => {
                let (proxy, status) = (proxy.host_port().to_owned(), response.status());
                Err(ConnectionError::ProxyStatus { proxy, status })
            }
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                Err(ConnectionError::ProxyTimedOut { proxy: proxy.host_port().to_owned() })
            }
        }
    }
}

/// Returns whether a proxy uses this status to report that it cannot reach the server.
const fn is_proxy_failure(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::PROXY_AUTHENTICATION_REQUIRED
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}
