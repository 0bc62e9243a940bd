//! Name resolution that records the addresses for error messages.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::vec;

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower_service::Service;

/// System resolver for one connection. Clones share the recorded addresses.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    system: GaiResolver,
    found: Arc<OnceLock<Vec<IpAddr>>>,
}

/// The host name cannot be resolved.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unresolved(#[source] io::Error);

impl Resolver {
    pub(super) fn new() -> Self {
        Self { system: GaiResolver::new(), found: Arc::default() }
    }

    /// Returns the resolved addresses; empty before resolution, or if the host is an address.
    pub(super) fn found(&self) -> &[IpAddr] {
        self.found.get().map_or(&[], Vec::as_slice)
    }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Unresolved;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Unresolved>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Unresolved>> {
        self.system.poll_ready(context).map_err(Unresolved)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (lookup, found) = (self.system.call(name), self.found.clone());
        Box::pin(async move {
            let addresses: Vec<_> = lookup.await.map_err(Unresolved)?.collect();
            // A resolver is used once, so the cell is still empty.
            let _ = found.set(addresses.iter().map(SocketAddr::ip).collect());
            Ok(addresses.into_iter())
        })
    }
}
