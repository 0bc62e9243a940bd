//! Requests to the admin API of a server.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::Full;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::http_client::exchange;

/// Time for one request, from the connection to the last byte.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatusError {
    #[error("--admin: {0:?} is not an address; use http://HOST:PORT or HOST:PORT")]
    Address(String),
    #[error("--admin: the admin API has no TLS; use http://, or a tunnel to the machine")]
    Tls,
    #[error("listen.admin has port 0, so the port is known to the server only; pass --admin URL")]
    FreePort,
    #[error(
        "no server answers at http://{0}: {1}; start one with `tidegate serve`, or pass the address \
         of its admin API with --admin"
    )]
    Unreachable(String, io::Error),
    #[error("http://{0} does not speak HTTP as the admin API does: {1}; check --admin")]
    Exchange(String, hyper::Error),
    #[error(
        "http://{0} did not answer within {seconds} s; check --admin",
        seconds = TIMEOUT.as_secs()
    )]
    TimedOut(String),
    #[error(
        "the server at http://{0} needs a token: set TIDEGATE_ADMIN_TOKEN to one that `tidegate key` \
         created and whose hash is under [admin]"
    )]
    NoToken(String),
    #[error("the server at http://{0} does not know the token in TIDEGATE_ADMIN_TOKEN")]
    UnknownToken(String),
    #[error("the token in TIDEGATE_ADMIN_TOKEN has characters that no token has")]
    Token,
    #[error("http://{0}{1} answered with status {2}; it may not be the admin API of this version")]
    Status(String, &'static str, StatusCode),
    #[error("http://{0}{1} did not answer with JSON: {2}")]
    Json(String, &'static str, serde_json::Error),
    #[error("http://{0} is not the admin API of a Tidegate of this version: no {1}")]
    Missing(String, &'static str),
    #[error("the server is not ready")]
    NotReady,
}

impl StatusError {
    /// Whether the user gave an address that cannot be used.
    pub(crate) const fn is_usage(&self) -> bool {
        matches!(self, Self::Address(_) | Self::Tls | Self::FreePort | Self::Token)
    }
}

/// Reads host and port from an address.
pub(super) fn authority(url: &str) -> Result<String, StatusError> {
    let invalid = || StatusError::Address(url.to_owned());
    if url.starts_with("https://") {
        return Err(StatusError::Tls);
    }
    let text = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let uri: Uri = text.parse().map_err(|_| invalid())?;
    let is_plain = uri.scheme_str() == Some("http") && uri.path() == "/" && uri.query().is_none();
    match uri.authority() {
        Some(authority) if is_plain && authority.port().is_some() => {
            // Credentials in the URL are not sent.
            let host_port = authority.as_str().rsplit('@').next();
            Ok(host_port.unwrap_or_default().to_owned())
        }
        _ => Err(invalid()),
    }
}

/// The admin API of one server.
pub(super) struct AdminApi {
    authority: String,
    token: Option<String>,
}

impl AdminApi {
    pub(super) const fn new(authority: String, token: Option<String>) -> Self {
        Self { authority, token }
    }

    /// The URL, for messages.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.authority)
    }

    /// Gets a JSON document.
    pub(super) async fn json(&self, path: &'static str) -> Result<Value, StatusError> {
        self.parse(path, &self.get(path).await?.1)
    }

    /// Gets whether the server is ready, and the document about it.
    pub(super) async fn readiness(&self) -> Result<Value, StatusError> {
        let path = "/readyz";
        let (status, body) = self.send(path).await?;
        match status {
            StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE => self.parse(path, &body),
            _ => Err(StatusError::Status(self.authority.clone(), path, status)),
        }
    }

    /// Gets text.
    pub(super) async fn text(&self, path: &'static str) -> Result<String, StatusError> {
        Ok(String::from_utf8_lossy(&self.get(path).await?.1).into_owned())
    }

    /// The error for a document without a field.
    pub(super) fn missing(&self, field: &'static str) -> StatusError {
        StatusError::Missing(self.authority.clone(), field)
    }

    fn parse(&self, path: &'static str, body: &[u8]) -> Result<Value, StatusError> {
        let error = |error| StatusError::Json(self.authority.clone(), path, error);
        serde_json::from_slice(body).map_err(error)
    }

    async fn get(&self, path: &'static str) -> Result<(StatusCode, Bytes), StatusError> {
        let (status, body) = self.send(path).await?;
        let authority = || self.authority.clone();
        match (status, &self.token) {
            (StatusCode::OK, _) => Ok((status, body)),
            (StatusCode::UNAUTHORIZED, None) => Err(StatusError::NoToken(authority())),
            (StatusCode::UNAUTHORIZED, Some(_)) => Err(StatusError::UnknownToken(authority())),
            _ => Err(StatusError::Status(authority(), path, status)),
        }
    }

    async fn send(&self, path: &str) -> Result<(StatusCode, Bytes), StatusError> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = Uri::try_from(path).unwrap_or_default();
        let host = HeaderValue::from_str(&self.authority);
        let host = host.map_err(|_| StatusError::Address(self.authority.clone()))?;
        request.headers_mut().insert(HOST, host);
        if let Some(token) = &self.token {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut value = value.map_err(|_| StatusError::Token)?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let authority = || self.authority.clone();
        let sent = async {
            let stream = TcpStream::connect(&self.authority).await;
            let stream = stream.map_err(|error| StatusError::Unreachable(authority(), error))?;
            let response = exchange(stream, request).await;
            response.map_err(|error| StatusError::Exchange(authority(), error))
        };
        let sent = timeout(TIMEOUT, sent).await;
        let (head, body) = sent.map_err(|_| StatusError::TimedOut(authority()))??.into_parts();
        Ok((head.status, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_urls_or_hosts_with_a_port() {
        let read = |text| authority(text).map_err(|error| error.to_string());
        assert_eq!(read("http://127.0.0.1:6070").unwrap(), "127.0.0.1:6070");
        assert_eq!(read("http://127.0.0.1:6070/").unwrap(), "127.0.0.1:6070");
        assert_eq!(read("[::1]:6070").unwrap(), "[::1]:6070");
        assert_eq!(read("http://me:pw@host:1").unwrap(), "host:1");
        assert!(read("https://host:1").unwrap_err().contains("no TLS"));
        for wrong in ["", "host", "ftp://host:1", "http://host:1/admin", "http://:1x"] {
            assert!(read(wrong).unwrap_err().contains("is not an address"), "{wrong}");
        }
    }
}
