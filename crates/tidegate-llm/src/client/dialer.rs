//! The first part of a connection: TCP to the server, or to a proxy that leads to it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower_service::Service;

use super::connector::Peer;
use super::resolver::Resolver;
use super::tunnel;
use crate::call::{BoxError, ConnectionError};
use crate::proxy::Proxy;

/// Makes connections to servers, through a proxy if there is one.
pub(super) struct Dialer {
    pub(super) http: HttpConnector<Resolver>,
    pub(super) resolver: Resolver,
    pub(super) proxy: Option<Proxy>,
    /// For proxies that are themselves asked over TLS.
    pub(super) proxy_tls: Arc<ClientConfig>,
    pub(super) timeout: Duration,
}

/// A connection to a server, or to a proxy that leads to it.
pub(super) enum Dialed {
    Direct(TokioIo<TcpStream>),
    /// Through a tunnel that is open, after which the proxy passes every byte on.
    Tunnel(Box<MaybeHttpsStream<TokioIo<TcpStream>>>),
    /// To a proxy that has to be told the whole URL of each request.
    Proxy(Box<MaybeHttpsStream<TokioIo<TcpStream>>>),
}

type Dialing = Pin<Box<dyn Future<Output = Result<Dialed, BoxError>> + Send>>;

impl Service<Uri> for Dialer {
    type Response = Dialed;
    type Error = BoxError;
    type Future = Dialing;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Dialing {
        let Some(proxy) = self.proxy.clone() else {
            let connecting = self.http.call(uri);
            return Box::pin(async move { Ok(Dialed::Direct(connecting.await?)) });
        };
        let mut to_proxy = HttpsConnector::from((self.http.clone(), self.proxy_tls.clone()));
        let (resolver, limit) = (self.resolver.clone(), self.timeout);
        let connecting = to_proxy.call(proxy.uri().clone());
        Box::pin(async move {
            let connected = connecting.await.map_err(|error| {
                let source = Peer::of(proxy.uri()).failed(error, resolver.found(), limit);
                let proxy = proxy.host_port().to_owned();
                ConnectionError::ProxyUnreachable { proxy, source: Box::new(source) }
            });
            let mut connected = Box::new(connected?);
            if uri.scheme() == Some(&Scheme::HTTPS) {
                tunnel::open(&mut *connected, &Peer::of(&uri), &proxy).await?;
                return Ok(Dialed::Tunnel(connected));
            }
            Ok(Dialed::Proxy(connected))
        })
    }
}

impl Connection for Dialed {
    fn connected(&self) -> Connected {
        match self {
            Self::Direct(stream) => stream.connected(),
            Self::Tunnel(stream) => stream.connected(),
            Self::Proxy(stream) => stream.connected().proxy(true),
        }
    }
}

/// What both kinds of streams do, done by the one there is.
macro_rules! delegated {
    ($self:ident, $stream:ident => $done:expr) => {
        match $self.get_mut() {
            Dialed::Direct($stream) => $done,
            Dialed::Tunnel($stream) | Dialed::Proxy($stream) => $done,
        }
    };
}

impl Read for Dialed {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        delegated!(self, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl Write for Dialed {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        delegated!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegated!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegated!(self, stream => Pin::new(stream).poll_shutdown(context))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Direct(stream) => stream.is_write_vectored(),
            Self::Tunnel(stream) | Self::Proxy(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegated!(self, stream => Pin::new(stream).poll_write_vectored(context, slices))
    }
}
