//! HTTP/1.1 requests to the Worker, on connections that are kept open.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tidegate_core::StoreError;
use tokio::time::timeout;

use crate::address::Address;
use crate::error::{DurableBuildError, DurableStoreError};

/// Maximum length of a response.
const MAX_RESPONSE: usize = 4 << 20;
/// Maximum length of the excerpt of an error text.
const EXCERPT: usize = 200;

#[cfg(feature = "tls")]
type Connector = hyper_rustls::HttpsConnector<HttpConnector>;
#[cfg(not(feature = "tls"))]
type Connector = HttpConnector;

/// Sends requests to one Worker.
#[derive(Debug)]
pub(crate) struct HttpClient {
    client: Client<Connector, Full<Bytes>>,
    address: Address,
    authorization: Option<HeaderValue>,
    timeout: Duration,
}

impl HttpClient {
    pub(crate) fn new(
        address: Address,
        authorization: Option<HeaderValue>,
        timeout: Duration,
    ) -> Result<Self, DurableBuildError> {
        let connector = connector(&address)?;
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, address, authorization, timeout })
    }

    /// Posts JSON and returns the body of the response.
    pub(crate) async fn post(
        &self,
        path: &str,
        body: Vec<u8>,
        header: Option<(&'static str, HeaderValue)>,
    ) -> Result<Bytes, StoreError> {
        let failed = |error: http::Error| self.connection_error(&error).into_store_error();
        let uri = self.address.url(path).map_err(failed)?;
        let body = Full::new(Bytes::from(body));
        let mut request = Request::post(uri).body(body).map_err(failed)?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if let Some((name, value)) = header {
            headers.insert(name, value);
        }
        self.send(request).await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Bytes, StoreError> {
        match timeout(self.timeout, self.exchange(request)).await {
            Ok(result) => result.map_err(DurableStoreError::into_store_error),
            Err(_) => Err(StoreError::TimedOut),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Bytes, DurableStoreError> {
        let response =
            self.client.request(request).await.map_err(|error| self.connection_error(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
        let body = body.map_err(|error| self.connection_error(&*error))?.to_bytes();
        match status {
            StatusCode::OK => Ok(body),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let (host, status) = (self.address.host().to_owned(), status.as_u16());
                Err(DurableStoreError::Unauthorized { host, status })
            }
            status => {
                Err(DurableStoreError::Status { status: status.as_u16(), text: excerpt(&body) })
            }
        }
    }

    fn connection_error(&self, error: &dyn Error) -> DurableStoreError {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            reason = format!("{reason}: {cause}");
            source = cause.source();
        }
        DurableStoreError::Connection { host: self.address.host().to_owned(), reason }
    }
}

fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(EXCERPT)]);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn http_connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector
}

#[cfg(not(feature = "tls"))]
fn connector(address: &Address) -> Result<Connector, DurableBuildError> {
    if address.is_tls() { Err(DurableBuildError::NoTls) } else { Ok(http_connector()) }
}

#[cfg(feature = "tls")]
fn connector(address: &Address) -> Result<Connector, DurableBuildError> {
    use std::sync::Arc;

    let mut roots = rustls::RootCertStore::empty();
    if address.is_tls() {
        let loaded = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(loaded.certs);
        if roots.is_empty() {
            return Err(DurableBuildError::Tls("the system has no root certificates".into()));
        }
    }
    // Chosen here: with two providers in a program, rustls would panic.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| DurableBuildError::Tls(error.into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut http = http_connector();
    http.enforce_http(false);
    let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config);
    Ok(builder.https_or_http().enable_http1().wrap_connector(http))
}
