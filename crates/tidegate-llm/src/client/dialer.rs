//! Opens TCP connections to a server, directly or through a proxy.

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

/// Opens connections to servers, through a proxy if one is set.
pub(super) struct Dialer {
    pub(super) http: HttpConnector<Resolver>,
    pub(super) resolver: Resolver,
    pub(super) proxy: Option<Proxy>,
    /// For connections to the proxy itself.
    pub(super) proxy_tls: Arc<ClientConfig>,
    pub(super) timeout: Duration,
}

/// Connection to a server, direct or through a proxy.
pub(super) enum Dialed {
    Direct(TokioIo<TcpStream>),
    /// Through an open tunnel: the proxy forwards every byte.
    Tunnel(Box<MaybeHttpsStream<TokioIo<TcpStream>>>),
    /// To a proxy that expects requests in absolute form.
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
                let source = Peer::of(proxy.uri()).connection_error(error, resolver.found(), limit);
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

/// Delegates a call to the stream of any variant.
macro_rules! delegate {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Dialed::Direct($stream) => $call,
            Dialed::Tunnel($stream) | Dialed::Proxy($stream) => $call,
        }
    };
}

impl Read for Dialed {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        delegate!(self, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl Write for Dialed {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, stream => Pin::new(stream).poll_shutdown(context))
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
        delegate!(self, stream => Pin::new(stream).poll_write_vectored(context, slices))
    }
}
