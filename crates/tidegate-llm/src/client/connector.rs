//! Makes connections: name resolution, TCP and TLS together within one time-out, and a typed error
//! if there is none.

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

/// How often a silent connection is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Makes connections with one connect time-out. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) tls: Arc<ClientConfig>,
    pub(super) timeout: Duration,
    pub(super) proxy: Option<Proxy>,
    /// For proxies that are themselves asked over TLS.
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
        // Divided among the addresses of a host, so that a dead one leaves time for the others.
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
                    connected.map_err(|error| peer.failed(error, resolver.found(), limit))
                }
                Err(_) => Err(ConnectionError::TimedOut(limit)),
            }
        })
    }
}

/// Whom a connection is made to.
pub(super) struct Peer {
    pub(super) host: String,
    port: u16,
}

impl Peer {
    pub(super) fn of(uri: &Uri) -> Self {
        let host = uri.host().unwrap_or_default();
        let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let usual = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(usual);
        Self { host: plain.unwrap_or(host).to_owned(), port }
    }

    fn addresses(&self, found: &[IpAddr]) -> Vec<SocketAddr> {
        let literal = self.host.parse().ok();
        let all = literal.iter().chain(found);
        all.map(|address| SocketAddr::new(*address, self.port)).collect()
    }

    /// Host and port, with brackets around an IPv6 address.
    pub(super) fn host_port(&self) -> String {
        let Self { host, port } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// The typed error.
    pub(super) fn failed(
        self,
        error: BoxError,
        found: &[IpAddr],
        limit: Duration,
    ) -> ConnectionError {
        // That of a proxy is typed already.
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

/// What an error of the connectors below says.
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
                return rejection(error)
                    .map_or_else(|| Self::Tls(error.clone()), Self::Certificate);
            }
            match error.downcast_ref::<io::Error>() {
                Some(io) if io.kind() == io::ErrorKind::ConnectionRefused => return Self::Refused,
                // That of the operating system is another one, and has its own name.
                Some(io) if io.kind() == io::ErrorKind::TimedOut && io.raw_os_error().is_none() => {
                    return Self::TimedOut;
                }
                _ => {}
            }
        }
        Self::Other
    }
}

/// What the verifier said of a certificate.
fn rejection(error: &rustls::Error) -> Option<ConnectionError> {
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
