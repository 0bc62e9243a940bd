//! Connects to servers: name resolution, TCP and TLS within one timeout, with typed errors.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{CertificateError, ClientConfig, OtherError};
use tokio::time::timeout;
use tower_service::Service;

use super::dialer::{Dialed, Dialer};
use super::resolver::{Resolver, Unresolved};
use crate::call::connection::chain;
use crate::call::{BoxError, ConnectionError};
use crate::proxy::Proxy;

/// Interval of TCP keep-alive probes.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Connector with fixed options. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) tls: Arc<ClientConfig>,
    pub(super) timeout: Duration,
    pub(super) proxy: Option<Proxy>,
    /// For connections to the proxy itself.
    pub(super) proxy_tls: Arc<ClientConfig>,
}

impl Connector {
    fn dialer(&self, resolver: Resolver) -> Dialer {
        Dialer {
            http: self.http(resolver.clone()),
            resolver,
            proxy: self.proxy.clone(),
            proxy_tls: self.proxy_tls.clone(),
            timeout: self.timeout,
        }
    }

    fn http(&self, resolver: Resolver) -> HttpConnector<Resolver> {
        let mut http = HttpConnector::new_with_resolver(resolver);
        http.enforce_http(false);
        http.set_nodelay(true);
        // Divided among the addresses of a host, so that an unreachable one leaves time for the
        // others.
        http.set_connect_timeout(Some(self.timeout));
        http.set_keepalive(Some(KEEPALIVE));
        http
    }
}

type Stream = MaybeHttpsStream<Dialed>;

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectionError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, ConnectionError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (resolver, limit) = (Resolver::new(), self.timeout);
        let mut https = HttpsConnector::from((self.dialer(resolver.clone()), self.tls.clone()));
        let peer = Peer::of(&uri);
        Box::pin(async move {
            let connecting = async {
                poll_fn(|context| https.poll_ready(context)).await?;
                https.call(uri).await
            };
            match timeout(limit, connecting).await {
                Ok(connected) => {
                    connected.map_err(|error| peer.connection_error(error, resolver.found(), limit))
                }
                Err(_) => Err(ConnectionError::TimedOut(limit)),
            }
        })
    }
}

/// Host and port of a connection.
pub(super) struct Peer {
    pub(super) host: String,
    port: u16,
}

impl Peer {
    pub(super) fn of(uri: &Uri) -> Self {
        let host = uri.host().unwrap_or_default();
        let without_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let default_port = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(default_port);
        Self { host: without_brackets.unwrap_or(host).to_owned(), port }
    }

    fn addresses(&self, found: &[IpAddr]) -> Vec<SocketAddr> {
        let literal = self.host.parse().ok();
        let all = literal.iter().chain(found);
        all.map(|address| SocketAddr::new(*address, self.port)).collect()
    }

    /// Returns host and port, with brackets around an IPv6 address.
    pub(super) fn host_port(&self) -> String {
        let Self { host, port } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Converts an error of the underlying connectors to a typed one.
    pub(super) fn connection_error(
        self,
        error: BoxError,
        found: &[IpAddr],
        limit: Duration,
    ) -> ConnectionError {
        // Errors of a proxy are typed already.
        let error = match error.downcast::<ConnectionError>() {
            Ok(typed) => return *typed,
            Err(error) => error,
        };
        match Cause::of(&error) {
            Cause::Unresolved => ConnectionError::HostNotFound { host: self.host, source: error },
            Cause::Refused => {
                let addresses = self.addresses(found);
                ConnectionError::Refused { host: self.host, addresses, source: error }
            }
            Cause::TimedOut => ConnectionError::TimedOut(limit),
            Cause::Certificate(rejected) => rejected,
            Cause::Tls(tls) => ConnectionError::Handshake { host: self.host, source: tls.into() },
            Cause::Other => ConnectionError::Other { host: self.host, source: error },
        }
    }
}

/// Cause of an error of the underlying connectors.
enum Cause {
    Unresolved,
    Refused,
    TimedOut,
    Certificate(ConnectionError),
    Tls(rustls::Error),
    Other,
}

impl Cause {
    fn of(error: &BoxError) -> Self {
        for error in chain(&**error) {
            if error.is::<Unresolved>() {
                return Self::Unresolved;
            }
            if let Some(error) = error.downcast_ref::<rustls::Error>() {
                return certificate_error(error)
                    .map_or_else(|| Self::Tls(error.clone()), Self::Certificate);
            }
            match error.downcast_ref::<io::Error>() {
                Some(io) if io.kind() == io::ErrorKind::ConnectionRefused => return Self::Refused,
                // A timeout of the operating system is not ours and is reported as such.
                Some(io) if io.kind() == io::ErrorKind::TimedOut && io.raw_os_error().is_none() => {
                    return Self::TimedOut;
                }
                _ => {}
            }
        }
        Self::Other
    }
}

/// Extracts the error of our certificate verifier.
fn certificate_error(error: &rustls::Error) -> Option<ConnectionError> {
    let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(error))) = error
    else {
        return None;
    };
    match error.downcast_ref()? {
        ConnectionError::Certificate { host, names, reason } => {
            Some(ConnectionError::Certificate {
                host: host.clone(),
                names: names.clone(),
                reason: reason.clone(),
            })
        }
        _ => None,
    }
}
