//! The head of a request: everything that keys, costs and exemptions may look at.
//!
//! The body is left out: it has not been read when a request is decided, and must not be.

use http::header::HeaderMap;
use http::{Extensions, Method, Request, Uri};

use crate::identity::{ClientAddress, ClientNetwork, PeerAddr};

/// A request without its body, borrowed.
///
/// ```
/// use http::Request;
/// use tidegate_http::Head;
/// use tidegate_http::identity::{ClientAddress, PeerAddr};
///
/// let mut request = Request::get("/orders").body(())?;
/// request.extensions_mut().insert(PeerAddr("192.0.2.7:4711".parse()?));
/// let clients = ClientAddress::peer();
/// let head = Head::of(&request, &clients);
/// assert_eq!(head.uri().path(), "/orders");
/// assert_eq!(head.client().unwrap().to_string(), "192.0.2.7/32");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    clients: &'a ClientAddress,
}

impl<'a> Head<'a> {
    /// Borrows the head of `request`. `clients` says how its client address is found.
    #[must_use]
    pub fn of<B>(request: &'a Request<B>, clients: &'a ClientAddress) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
            clients,
        }
    }

    /// Returns the request method.
    #[must_use]
    pub const fn method(&self) -> &'a Method {
        self.method
    }

    /// Returns the request target. Its path is as the caller sent it and makes a poor key; use
    /// [`key::path`](crate::key::path) instead.
    #[must_use]
    pub const fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// Returns the header fields.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the request extensions, as set by outer layers.
    #[must_use]
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// Returns the client: its IPv4 address or the prefix of its IPv6 address. `None` if the server
    /// did not put the peer address into the extensions.
    #[must_use]
    pub fn client(&self) -> Option<ClientNetwork> {
        let peer = self.peer()?.ip();
        Some(self.clients.network(self.clients.find(peer, self.headers)))
    }

    /// Returns the address of the other end of the connection.
    pub(crate) fn peer(&self) -> Option<std::net::SocketAddr> {
        if let Some(PeerAddr(peer)) = self.extensions.get() {
            return Some(*peer);
        }
        #[cfg(feature = "axum")]
        if let Some(axum::extract::ConnectInfo(peer)) =
            self.extensions.get::<axum::extract::ConnectInfo<std::net::SocketAddr>>()
        {
            return Some(*peer);
        }
        #[cfg(feature = "tonic")]
        if let Some(peer) = self.extensions.get::<tonic::transport::server::TcpConnectInfo>() {
            return peer.remote_addr();
        }
        None
    }
}

impl std::fmt::Debug for Head<'_> {
    /// Shows only the method: headers and targets contain keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Head").field("method", self.method).finish_non_exhaustive()
    }
}
